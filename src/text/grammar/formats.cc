#include "text/grammar/formats.h"

#include <utility>

namespace lathe {

namespace {

#define DATE                                                                                                     \
  "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]" \
  "|1[0-9]|2[0-8]))"
#define TIME "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST LABEL "(?:\\." LABEL ")*"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define GROUP "[0-9a-fA-F]{1,4}"
#define PATH "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define DAYS "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
#define HOURS "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"

constexpr std::pair<std::string_view, std::string_view> kFormats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration", "P(?:" DAYS "(?:" HOURS ")?|" HOURS "|[0-9]+W)"},
    {"email", ATOM "(?:\\." ATOM ")*@" LABEL "(?:\\." LABEL ")+"},
    {"hostname", HOST},
    {"ipv4", BYTE "(?:\\." BYTE "){3}"},
    {"ipv6", "(?:" GROUP ":){7}" GROUP "|(?:" GROUP ":){1,7}:|(?:" GROUP ":){1,6}:" GROUP "|(?:" GROUP
             ":){1,5}(?::" GROUP "){1,2}|(?:" GROUP ":){1,4}(?::" GROUP "){1,3}|(?:" GROUP ":){1,3}(?::" GROUP
             "){1,4}|(?:" GROUP ":){1,2}(?::" GROUP "){1,5}|" GROUP ":(?::" GROUP "){1,6}|:(?:(?::" GROUP "){1,7}|:)"},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"uri", "[A-Za-z][A-Za-z0-9+.-]*:(?://" HOST "(?::[0-9]{1,5})?(?:/" PATH "*)*|" PATH "+(?:/" PATH
            "*)*)(?:\\?(?:" PATH "|[/?])*)?(?:#(?:" PATH "|[/?])*)?"},
};

#undef DATE
#undef TIME
#undef LABEL
#undef HOST
#undef ATOM
#undef BYTE
#undef GROUP
#undef PATH
#undef DAYS
#undef HOURS

}  // namespace

std::optional<std::string_view> pattern_of_format(std::string_view format) {
  for (const auto& [name, pattern] : kFormats)
    if (name == format) return pattern;
  return std::nullopt;
}

std::string_view known_formats() { return "date, time, date-time, duration, email, hostname, ipv4, ipv6, uuid, uri"; }

}  // namespace lathe
