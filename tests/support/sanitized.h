// Whether this is a build with a sanitizer, which runs ten times slower: searches are then shorter,
// since the release build of the same tests makes them at full length.
#pragma once

namespace kipp::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

// Threads alone are watched: what computes on one thread, as `reference` does, has nothing to show.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadsWatched = true;
#else
inline constexpr bool kThreadsWatched = false;
#endif

}  // namespace kipp::test
