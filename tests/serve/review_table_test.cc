// Every bound, error and default of the serving specification, and the test that holds the server to it. The table is
// read by people; the test below sees to it that each name is a test in this tree.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "testing/golden.h"

namespace lathe::serve {
namespace {

struct Row {
  const char *section, *rule, *test;
};

constexpr Row kTable[] = {
    {"1", "unknown route 404, wrong method 405 with Allow", "Http.RoutesAndMethods"},
    {"1", "prompt: string, ids, or up to 64 of either", "Completions.PromptsOfEveryKind"},
    {"1", "responses: store true and previous_response_id 400", "Responses.WhatIsNotOfferedIsRefused"},
    {"1", "tokenize, render and generation agree", "Chat.TokenizeRenderAndGenerationAgree"},
    {"1", "cancel: 404 unknown, repeatable, same key only", "Keys.OnlyTheSameKeyCancels"},
    {"1", "version tells no paths", "Server.VersionTellsNoPaths"},
    {"1", "admin routes on the admin listener only", "Server.AdminListener"},
    {"2", "unknown fields counted or refused", "FieldTable.UnknownFieldsAreCountedOrRefused"},
    {"2", "integers: type, fraction, bounds", "FieldTable.IntegersAreHeldToTheirBounds"},
    {"2", "numbers: NaN, infinity, bounds", "FieldTable.NumbersAreHeldToTheirBounds"},
    {"2", "booleans, strings, lists, seed of 64 bits", "FieldTable.BooleansStringsAndListsHaveOneType"},
    {"2", "messages 1..4096, roles, parts, tool arguments", "Chat.HistoryRules"},
    {"2", "max_tokens lowered, X-Max-Tokens-Effective, context_length_exceeded", "Chat.MaxTokens"},
    {"2", "stop: 16 of 1..256 bytes, 64 ids", "FieldTable.StopStrings"},
    {"2", "logit_bias: 1024, -100..100, id < vocab", "FieldTable.LogitBias"},
    {"2", "top_logprobs, min_tokens, best_of, stream_options", "FieldTable.FieldsThatDependOnOthers"},
    {"2", "prompt log probabilities", "ServiceTest.LogprobsAreThoseOfTeacherForcedLogits"},
    {"2", "sampling depends on seed, position and logits", "ServiceTest.AloneAndTogetherGiveTheSameText"},
    {"2", "n by fork, seed + i", "ServiceTest.ChoicesDrawApartAndTheFirstIsThatOfOneAlone"},
    {"2", "what is drawn has the logits' distribution", "Distribution.DrawsFollowTheSoftmax"},
    {"2", "min_tokens, stop ids", "ServiceTest.MinTokensHoldsEndsOffAndStopTokensEnd"},
    {"2", "at most one structure; response_format", "Structure.SourcesAndTheirErrors"},
    {"2", "response_format beside tools", "Structure.WithToolsTheTextOrCalls"},
    {"2", "tools <= 512, schema limits, tool_choice of a known one", "Chat.ToolSchemasHaveLimits"},
    {"2", "chat_template_kwargs is an allow-list", "Chat.TemplateVariablesAreAnAllowList"},
    {"2", "priority bounded by the key, cache_salt forced by it", "Keys.GoIntoTheRequest"},
    {"2", "timeout_ms: 504 while it waits", "Chat.DeadlineEndsAWaitingRequest"},
    {"2", "timeout_ms: ends what runs", "ServiceTest.ADeadlineEndsWhatIsQueuedAndWhatRuns"},
    {"2", "client text makes no control tokens", "Chat.ClientTextNeverBecomesAControlToken"},
    {"3", "http, file, other schemes, base64, sizes, counts: fixed words", "Images.BadOnesAreRefusedInFixedWords"},
    {"3", "each limit from the headers", "BrokenImage.DecompressionBombsAreRefusedFromTheHeader"},
    {"3", "20 MiB, 64 MP, 16384 a side", "BrokenImage.EachLimitRefusesAlone"},
    {"3", "keys of bytes, size, preprocessing", "Images.ReachTheRequestInEveryApi"},
    {"3", "keys enter every block hash", "PrefixKeys.APictureBelongsToEveryBeginningWithItsFirstPlaceholder"},
    {"3", "encoded beside the steps of others", "Robustness.PicturesAreEncodedBetweenStepsOfOthers"},
    {"4", "frames, headers, ends", "Http.StreamHeadersAndOneFrameEach"},
    {"4", "headers at once, pings in silence", "Http.HeadersLeaveWhileTheRequestWaitsAndPingsFollow"},
    {"4", "concatenated stream = non-stream", "Chat.StreamEqualsWhole"},
    {"4", "the same for messages", "Messages.StreamEqualsWhole"},
    {"4", "the same for responses", "Responses.StreamEqualsWhole"},
    {"4", "any split of the text gives the same", "OutputStream.AnySplitGivesTheSame"},
    {"4", "characters whole, a broken tail one U+FFFD", "OutputText.ABrokenTailBecomesOneReplacement"},
    {"4", "stop strings over tokens", "StopStrings.EverySplitOfRandomTextsStopsWhereThePlainestSearchDoes"},
    {"4", "only a true prefix is held back", "StopStrings.OnlyWhatMayBecomeAStopStringIsHeldBack"},
    {"4", "usage once, or in every chunk", "Chat.ContinuousUsageIsInEveryChunk"},
    {"4", "an error behind the first byte is the last frame", "Chat.FailuresBeforeAndBehindTheFirstByte"},
    {"4", "messages: blocks in order", "Messages.BlocksInOrder"},
    {"4", "messages: stop reasons", "Messages.StopReasons"},
    {"5", "calls inside reasoning, delimiters inside arguments", "OutputStream.WhereCallsStand"},
    {"5", "no call is lost", "OutputStream.NoCallIsLost"},
    {"5", "schema types", "OutputStream.ArgumentsFollowTheSchema"},
    {"5", "tool_choice required and named by mask", "Structure.ForcedCallsAreAGrammar"},
    {"6", "caps of schema, pattern, grammar", "Grammar.LimitsAreSaid"},
    {"6", "unsupported keywords are listed", "Schema.WhatIsNotSupportedIsListed"},
    {"6", "cycles by reference", "Schema.References"},
    {"6", "LRU by bytes", "GrammarCache.CompilesOnceAndForgetsTheOldest"},
    {"6", "with drafts, forks, behind reasoning", "ServiceTest.GrammarsHoldWithDraftsForksAndAfterReasoning"},
    {"6", "grammar_dead_end", "Chat.FailuresBeforeAndBehindTheFirstByte"},
    {"6", "a bad request can't stop the engine: grammar", "Robustness.AGrammarThatThrowsEndsItsRequestOnly"},
    {"7", "401, 403", "Keys.EveryRouteButLiveNeedsOne"},
    {"7", "429 with Retry-After: concurrency", "Keys.QuotasGive429"},
    {"7", "429: tokens a minute", "Keys.TokensOfAMinute"},
    {"7", "408 slow head or body", "Http.ASlowHeadOrBodyIsCutOff"},
    {"7", "413, 431, malformed heads 400", "Http.MalformedRequestsGetAReplyAndNothingElseHappens"},
    {"7", "503 full queue, Retry-After", "Server.AFullQueueIs503WithRetryAfter"},
    {"7", "503 before images are read", "Images.AreNotReadWhenTheirRequestIsRefused"},
    {"7", "queue length, queued tokens, estimated wait", "Admission.BoundsAreHeldAndSaid"},
    {"7", "fair queue, priority raised by waiting", "FairQueue.HigherPriorityGoesFirstAndWaitingRaisesIt"},
    {"7", "preemption keeps the stream", "ServiceTest.PressureOnPagesPreemptsAndChangesNothing"},
    {"7", "cancel in every phase, pools return", "ServiceTest.CancellationInEveryPhaseEndsTheStreamAndFreesAll"},
    {"7", "socket close cancels", "Http.AClientThatLeavesEndsItsRequest"},
    {"7", "an exception in one request is contained", "Robustness.AThrowingOutputStreamEndsItsRequestOnly"},
    {"7", "non-finite logits end their request", "Robustness.NonFiniteLogitsEndTheirRequestOnly"},
    {"7", "device fault: all told", "Robustness.ADeviceFaultEndsEveryRequestAndTheService"},
    {"7", "device fault: the server ends", "Server.AFailedEngineIsToldAndEndsTheServer"},
    {"8", "live 503 after a stall of 30 s", "Server.LiveTurnsWhenTheEngineStalls"},
    {"8", "ready, drain, undrain", "Server.LoadsDrainsAndUndrains"},
    {"8", "SIGTERM drains", "Serve.ADrainLetsRunningOnesFinishAndRefusesNewOnes"},
    {"8", "drain ends in error frames", "Server.ADrainThatTakesTooLongEndsInErrorFrames"},
    {"8", "second SIGTERM", "Serve.ASecondSignalEndsAtOnce"},
    {"8", "kill -9 and restart", "Serve.KilledAndStartedAgainItHasLostWhatWasInFlightAndNothingElse"},
    {"8", "8192 connections", "Http.ConnectionsAreLimited"},
    {"8", "64 KiB send buffer pauses only its stream", "Http.ASlowReaderPausesOnlyItself"},
    {"8", "defaults of all of these", "Config.DefaultsAreThoseOfTheSpecification"},
    {"9", "a hit resumes every kind", "PrefixCacheTest.AHitResumesEveryKindAtEveryOffset"},
    {"9", "classes that can't resume veto", "PrefixCacheTest.MissingMtpRowsVetoWhereDraftsAreWanted"},
    {"9", "short prompts pay nothing", "PrefixCacheTest.ShortPromptsPayNothing"},
    {"9", "warm and cold", "PrefixResume.WarmAndColdAreEqualBitForBitInStrict"},
    {"9", "128-bit keyed hash", "PrefixKeys.TheHashIsSipHash24With128Bits"},
    {"9", "tiers move all classes or none", "HostTierTest.AKindThatExportForgotIsRefused"},
    {"9", "no block is reused under a load", "NeverLiesFault.IsCaught"},
    {"11", "strict: equal ids under load", "NeverLies.StrictGivesEqualIds"},
    {"11", "fast: near ties only", "NeverLies.FastDiffersInNearTiesOnly"},
    {"11", "drafts change no token, nor the distribution", "Distribution.DraftsKeepIt"},
    {"12", "metrics well formed and right", "Server.MetricsAreWellFormedAndAgreeWithReplies"},
    {"12", "X-Request-Id", "Http.RequestIdsComeBack"},
    {"13", "no CORS, Host check", "Http.NoCorsAndAHostCheckOnLoopback"},
    {"13", "a public address needs keys", "Serve.WhatCannotBeServedIsUsage"},
    {"13", "JSON depth 64", "Body.DepthEndsAt64"},
    {"13", "templates: steps, depth, output", "Jinja.LimitsEndWhatNeverEnds"},
    {"14", "file < environment < flags", "Config.FlagsBeatTheEnvironmentAndThatTheFile"},
    {"14", "unknown keys are errors", "Config.UnknownKeysAreErrorsThatNameTheNearest"},
    {"14", "bad mixes", "Config.BadMixes"},
    {"14", "check-config: memory plan and limits", "Config.CheckConfigTellsMemoryAndLimits"},
    {"14", "OpenAPI file", "Documents.OpenApiFileIsWhatTheServerTells"},
};

std::set<std::string> tests_of_this_tree() {
  std::set<std::string> names;
  const std::regex test(R"(^TEST(?:_F|_P)?\((\w+),\s*(\w+)\))");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(testing::source_path("tests"))) {
    if (!entry.path().string().ends_with("_test.cc")) continue;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);)
      if (std::smatch m; std::regex_search(line, m, test)) names.insert(m[1].str() + "." + m[2].str());
  }
  return names;
}

TEST(ReviewTable, EveryRuleOfTheSpecificationHasItsTest) {
  const std::set<std::string> tests = tests_of_this_tree();
  ASSERT_GT(tests.size(), 300u);
  for (const Row& row : kTable)
    EXPECT_TRUE(tests.contains(row.test)) << row.section << " " << row.rule << ": " << row.test;
}

}  // namespace
}  // namespace lathe::serve
