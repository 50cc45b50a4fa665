/* kipp from C: the engine that `kipp run` and `kipp chat` use, as a C11 interface.
 *
 * A model is an artifact, its tokenizer, a backend and one cache of keys and values. A session is
 * one timeline of tokens over it. Callers hand in whole prompts and kipp_session_sync() evaluates
 * what is neither in the timeline nor in the cache. What a session computes depends on its tokens
 * alone: not on other sessions, on what is cached, on the cut into calls, or on the number of
 * threads.
 *
 * Errors. Every call but kipp_version() and kipp_last_error() returns a kipp_status. Unless that is
 * KIPP_OK, kipp_last_error() is one sentence for a person, and unless said otherwise the call has
 * changed nothing and written to none of its outputs. No call throws or ends the process; NULL
 * where something is needed, a closed handle and a value out of range are errors like any other.
 *
 * Threads. Any thread may call anything. Calls on one model and its sessions take turns: while one
 * evaluates, the next waits. Only kipp_model_info_of(), kipp_model_sampling(),
 * kipp_model_is_stop(), kipp_tokenize(), kipp_detokenize() and kipp_chat_prompt() do not, and of
 * all calls on models and sessions these alone may be made from within a callback. A callback runs
 * on the thread of the call it belongs to, and must not throw or longjmp out of it.
 *
 * Ownership. What a call gives out as a handle is the caller's to close. What it is handed is read
 * during the call and never kept. Text is UTF-8.
 *
 * Structs. A struct with a `size` begins with it: set it to sizeof the struct, everything else to
 * zero, then what matters:
 *
 *     kipp_model_options options = {.size = sizeof options, .backend = "cpu", .kv_policy = "bf16"};
 *
 * Later versions add members at the end, for which zero means what was before; a caller built with
 * an older header goes on working, and one built with a newer header is refused only if it asks for
 * something this library does not have. Structs without a `size` never change.
 */
#ifndef KIPP_KIPP_H_
#define KIPP_KIPP_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define KIPP_API __attribute__((visibility("default")))
#else
#define KIPP_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header; kipp_version() is the library's. */
#define KIPP_VERSION_MAJOR 0
#define KIPP_VERSION_MINOR 1
#define KIPP_VERSION_PATCH 0

/* Rows of the vocabulary: the length of a row of logits. Ids from KIPP_NAMED_TOKENS on name no
 * token; they are refused where they are handed in, and never drawn. */
#define KIPP_VOCAB_ROWS 151936
#define KIPP_NAMED_TOKENS 151669

typedef enum kipp_status {
  KIPP_OK = 0,
  KIPP_INVALID = 1,     /* a value is out of range, a handle is closed, a buffer is too small */
  KIPP_REFUSED = 2,     /* a file is not what the registry pins, or not what was saved */
  KIPP_IO = 3,          /* the operating system said no: file, disk, permission */
  KIPP_NETWORK = 4,     /* a download failed */
  KIPP_EXHAUSTED = 5,   /* no room left: KV blocks, capacity, memory */
  KIPP_INTERRUPTED = 6, /* a callback asked to stop */
  KIPP_INTERNAL = 7     /* a fault of kipp's own; please report it */
} kipp_status;

typedef struct kipp_model kipp_model;
typedef struct kipp_session kipp_session;

/* "0.1.0". Static. */
KIPP_API const char* kipp_version(void);

/* Why the last call on this thread that failed did so, as one sentence; "" if none did. Valid until
 * the next call on this thread that fails. */
KIPP_API const char* kipp_last_error(void);

/* ---- Models ---- */

typedef struct kipp_model_options {
  size_t size;
  const char* backend;   /* needed: "cpu", "cuda", "webgpu" or "reference"; nothing falls back */
  const char* kv_policy; /* needed: how keys and values are kept: "bf16", "int8", "tiered",
                          * "tiered-max", or a policy in words (docs/KV.md) */
  const char* weights;   /* "packed" (also if NULL): a copy in the order the kernels read;
                          * "mapped": left in the file, half the memory, slower */
  int32_t threads;       /* that compute; 0: one per core */
  int32_t kv_blocks;     /* of 32 positions each, for all sessions together; 0: one whole context */
  int32_t allow_synthetic; /* not 0: accept files with random weights (`kipp synthesize`) */
  /* While weights are made ready: bytes done, of how many. May be NULL. */
  void (*progress)(void* user, uint64_t done, uint64_t total);
  void* user;
  int32_t kv_sequences;      /* sessions that share kv_blocks at a time, where kv_policy is not
                              * "bf16": each has a window of its own beside its blocks; 0: one */
  int32_t allow_unproven_kv; /* not 0: accept a kv_policy that was not proven on the checkpoint */
  const char* adapter; /* of "webgpu": a GPU's number or a part of its name, as `kipp devices` lists
                        * them; NULL: the best there is. Refused with other backends */
} kipp_model_options;

/* Opens a model file. */
KIPP_API kipp_status kipp_model_open(const char* path, const kipp_model_options* options,
                                     kipp_model** model);

/* Refused while sessions over it are open. Waits for the model's running call. */
KIPP_API kipp_status kipp_model_close(kipp_model* model);

/* Text belongs to the model and is valid until it is closed. */
typedef struct kipp_model_info {
  size_t size;
  const char* id;          /* of the checkpoint: "qwen3-0.6b" */
  const char* scheme;      /* of its weights: "bf16", "q8_0", "affine4_gs32", "scale4_gs32" */
  const char* backend;     /* "cpu" */
  const char* kv_policy;   /* as given */
  int32_t context_length;  /* positions: the most a session can hold */
  int32_t kv_blocks;       /* of 32 positions each, for all sessions together */
  int32_t threads;         /* that compute */
  int32_t max_step_tokens; /* the most tokens that one step takes */
  int32_t max_logit_rows;  /* the most rows of logits that one step gives */
  int32_t can_chat;     /* 1: an instruct checkpoint; 0: a base one, without kipp_chat_prompt() */
  uint64_t block_bytes; /* keys and values of 32 positions */
} kipp_model_info;

KIPP_API kipp_status kipp_model_info_of(kipp_model* model, kipp_model_info* info);

/* Sets *stop to 1 if the model ends its text or its turn with this token, else to 0. */
KIPP_API kipp_status kipp_model_is_stop(kipp_model* model, int32_t token, int32_t* stop);

/* Where the model's blocks are; total = free + private_blocks + pinned + evictable. */
typedef struct kipp_pool_stats {
  size_t size;
  int32_t total;
  int32_t free_blocks;
  int32_t private_blocks; /* one session writes each */
  int32_t pinned;         /* full, immutable, and in use */
  int32_t evictable;      /* full, found by later prompts until somebody needs the memory */
  int32_t reserved;       /* promised to sessions and not taken; at most free_blocks + evictable */
  /* Since the model was opened. */
  uint64_t lookups;       /* prompts whose prefix was looked for */
  uint64_t lookup_tokens; /* their tokens that were not in the timeline */
  uint64_t hit_tokens;    /* tokens that were found and were not evaluated again */
  uint64_t published;     /* blocks */
  uint64_t deduplicated;  /* blocks given back because an equal one was there */
  uint64_t evictions;
} kipp_pool_stats;

KIPP_API kipp_status kipp_model_pool_stats(kipp_model* model, kipp_pool_stats* stats);

/* ---- Text ----
 * Calls that give a run of values write them to a buffer of the caller's and set *count to how many
 * there are. If that is more than `capacity`, *count is set all the same, nothing is written and
 * the call is KIPP_INVALID; a buffer of NULL with capacity 0 only asks for the count, and is
 * KIPP_OK. */

/* The tokens of `bytes` bytes of text, which need not be UTF-8. Text such as <|im_end|> becomes the
 * control token it names only if `control` is not 0: never for what users wrote. */
KIPP_API kipp_status kipp_tokenize(kipp_model* model, const char* text, size_t bytes,
                                   int32_t control, int32_t* tokens, size_t capacity,
                                   size_t* count);

/* The bytes of the tokens joined, without a 0 at the end. A character may be spread over several
 * tokens: one token's bytes need not be UTF-8. Control tokens are left out if `skip_control` is not
 * 0. */
KIPP_API kipp_status kipp_detokenize(kipp_model* model, const int32_t* tokens, size_t n,
                                     int32_t skip_control, char* text, size_t capacity,
                                     size_t* count);

typedef struct kipp_chat_message {
  const char* role;      /* "system", "user", "assistant", "tool" */
  const char* content;   /* NULL: none */
  const char* reasoning; /* of an assistant; NULL: none */
  const char*
      tool_calls; /* of an assistant, a JSON array in the shape of OpenAI's API; NULL: none */
} kipp_chat_message;

typedef struct kipp_chat_options {
  size_t size;
  const char* tools; /* a JSON array in the shape of OpenAI's API; NULL: none */
  int32_t thinking;  /* 0: the template's default, 1: may reason, -1: may not */
  int32_t
      no_generation_prompt; /* not 0: end behind the last message instead of opening the answer */
} kipp_chat_options;

/* The conversation as the checkpoint's official template renders it, in tokens. Control tokens are
 * the template's alone: what is in a message stays text. `options` may be NULL. */
KIPP_API kipp_status kipp_chat_prompt(kipp_model* model, const kipp_chat_message* messages,
                                      size_t n_messages, const kipp_chat_options* options,
                                      int32_t* tokens, size_t capacity, size_t* count);

/* ---- Sessions ---- */

typedef struct kipp_session_options {
  size_t size;
  int32_t capacity; /* positions, promised: a session never fails for want of a block; 0: the whole
                       context */
  uint64_t salt;    /* sessions of different salts share no blocks */
} kipp_session_options;

/* `options` may be NULL. KIPP_EXHAUSTED when the model's blocks cannot be promised. */
KIPP_API kipp_status kipp_session_open(kipp_model* model, const kipp_session_options* options,
                                       kipp_session** session);

/* Its full blocks stay in the cache, for others to find, until the memory is needed. */
KIPP_API kipp_status kipp_session_close(kipp_session* session);

/* A second session with the same tokens, logits and capacity, which goes its own way from here.
 * Their full blocks are shared, the open one is copied. */
KIPP_API kipp_status kipp_session_fork(kipp_session* session, kipp_session** fork);

/* Tokens of the prompt that are in the session, of how many: before the first chunk and after each,
 * which is at most max_step_tokens long. Not 0: stop. */
typedef int32_t (*kipp_progress)(void* user, int32_t done, int32_t total);

/* Makes the timeline equal to the prompt (at least one token) and sets *reused, which may be NULL,
 * to how many of its tokens needed no evaluation. The last one is always evaluated, so that its
 * logits exist. `progress` may be NULL. KIPP_INTERRUPTED when it asked to stop: what was evaluated
 * is kept, and the next call goes on from it. */
KIPP_API kipp_status kipp_session_sync(kipp_session* session, const int32_t* prompt, size_t n,
                                       kipp_progress progress, void* user, int32_t* reused);

/* Appends one token and evaluates it. */
KIPP_API kipp_status kipp_session_append(kipp_session* session, int32_t token);

/* Appends tokens, 1 to max_logit_rows of them, and gives the logits of each: `logits` has room for
 * n * KIPP_VOCAB_ROWS floats, row i for the token after tokens[i]. May be drafts: truncate takes
 * them back. */
KIPP_API kipp_status kipp_session_append_scored(kipp_session* session, const int32_t* tokens,
                                                size_t n, float* logits);

typedef struct kipp_batch_item {
  kipp_session* session; /* each at most once */
  const int32_t* tokens; /* to append; at least one */
  size_t n;
} kipp_batch_item;

/* One step for several sessions of one model: its weights are read once for all. Each session
 * appends its tokens and has the logits of the last one; they are the logits it would have alone.
 * At most max_step_tokens tokens and max_logit_rows sessions. All or nothing. */
KIPP_API kipp_status kipp_batch_append(const kipp_batch_item* items, size_t n_items);

/* Forgets everything from position `length` on, and the logits unless that is nothing. */
KIPP_API kipp_status kipp_session_truncate(kipp_session* session, int32_t length);

/* Sets *length to how many tokens of the prompt kipp_session_sync() would reuse now. */
KIPP_API kipp_status kipp_session_match(kipp_session* session, const int32_t* prompt, size_t n,
                                        int32_t* length);

/* The timeline, as runs of values are given. */
KIPP_API kipp_status kipp_session_tokens(kipp_session* session, int32_t* tokens, size_t capacity,
                                         size_t* count);

/* Points *logits to KIPP_VOCAB_ROWS floats: the row of the last token. Valid until the next call
 * that changes or closes this session. KIPP_INVALID when the last token was not just evaluated: at
 * the beginning, after truncate, after an interruption. */
KIPP_API kipp_status kipp_session_logits(kipp_session* session, const float** logits);

/* Writes tokens, keys and values, and logits to a file, which appears whole or not at all. */
KIPP_API kipp_status kipp_session_save(kipp_session* session, const char* path);

/* Makes the timeline equal to a saved one; nothing is evaluated, and what comes next has the same
 * bits as if it had been. Refused, with the session as it was: a damaged file, or one of another
 * checkpoint, scheme, KV policy or backend. */
KIPP_API kipp_status kipp_session_load(kipp_session* session, const char* path);

/* ---- Drawing tokens ---- */

typedef struct kipp_logit_bias {
  int32_t token;
  float bias; /* -100 to 100, added to the logit */
} kipp_logit_bias;

/* All zero is greedy: the likeliest token, always. */
typedef struct kipp_sampling {
  size_t size;
  float temperature; /* 0: greedy; else divides the logits */
  int32_t top_k;     /* keep the k likeliest tokens; 0: all */
  float top_p; /* keep the fewest likeliest that hold this share of probability, up to 1; 0: all */
  float min_p; /* keep those at least min_p times as likely as the likeliest, up to 1; 0: all */
  float repetition_penalty; /* above 1 discourages each token of prompt and output; 0 and 1: none */
  float presence_penalty;   /* -2 to 2: taken off tokens among the last 64 generated */
  float frequency_penalty;  /* -2 to 2: taken off for each time among the last 64 generated */
  int32_t n_logit_bias;
  const kipp_logit_bias* logit_bias; /* each token at most once */
  uint64_t seed;                     /* equal seeds give equal tokens */
} kipp_sampling;

/* What the checkpoint's makers recommend; all zero if nothing. */
KIPP_API kipp_status kipp_model_sampling(kipp_model* model, kipp_sampling* sampling);

/* Draws from the session's logits, without appending. The timeline's first `prompt_tokens` tokens
 * are the prompt; what follows counts as generated, for the penalties and for the number of the
 * draw. */
KIPP_API kipp_status kipp_session_sample(kipp_session* session, const kipp_sampling* sampling,
                                         int32_t prompt_tokens, int32_t* token);

typedef enum kipp_finish {
  KIPP_FINISH_STOP = 0,       /* a stop token or a stop string */
  KIPP_FINISH_LENGTH = 1,     /* max_tokens, or the session is full */
  KIPP_FINISH_INTERRUPTED = 2 /* a callback asked */
} kipp_finish;

typedef struct kipp_generate_options {
  size_t size;
  const kipp_sampling* sampling; /* NULL: greedy */
  int32_t max_tokens;            /* 0: evaluate the prompt and draw nothing */
  int32_t ignore_eos;            /* not 0: stop tokens do not end it, and are not in the text */
  int32_t max_draft; /* 0: one token a step; else up to so many, at most 64, are proposed by what
                      * followed the last time and checked in one step: the same tokens, sooner
                      * where text repeats */
  const char* const* stop; /* stop strings; the text ends before the first */
  size_t n_stop;           /* at most 4 */
  kipp_progress progress;  /* of the prompt; may be NULL */
  /* What a drawn token made certain: `bytes` bytes of whole characters, perhaps none, not ended by
   * a 0 and valid during the call. `token` is -1 in the last call, if text was still waiting. Not
   * 0: stop. May be NULL. */
  int32_t (*text)(void* user, int32_t token, const char* text, size_t bytes);
  void* user; /* of both callbacks */
} kipp_generate_options;

typedef struct kipp_generation {
  size_t size;
  int32_t finish; /* a kipp_finish */
  int32_t prompt_tokens;
  int32_t reused_tokens;    /* of the prompt: were in the session or the cache */
  int32_t evaluated_tokens; /* of the prompt */
  int32_t drawn_tokens;     /* a stop token included */
  int32_t appended_tokens;  /* of these: are in the session, behind the prompt */
  int32_t drafted_tokens;   /* proposed and checked, with max_draft */
  int32_t accepted_tokens;  /* of these: as drawn */
  double prompt_seconds;
  double decode_seconds;
} kipp_generation;

/* Syncs the session with the prompt, draws and appends until something ends it, and hands out text
 * as it comes. Being interrupted is no error here. `generation` may be NULL. */
KIPP_API kipp_status kipp_session_generate(kipp_session* session, const int32_t* prompt, size_t n,
                                           const kipp_generate_options* options,
                                           kipp_generation* generation);

#ifdef __cplusplus
}
#endif

#endif /* KIPP_KIPP_H_ */
