#include <fmt/format.h>
int main() { fmt::print("lathe\n"); }
