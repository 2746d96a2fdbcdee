#pragma once

#include "base/status.h"
#include "text/jinja/value.h"

namespace lathe {

// A list of messages with the arguments of all tool calls as objects, or as their JSON; "" and null count as no
// arguments. Errors name the message: not a list of objects with a role, or arguments that are no JSON object.
Result<jinja::Value> with_object_arguments(const jinja::Value& messages);
Result<jinja::Value> with_text_arguments(const jinja::Value& messages);

}  // namespace lathe
