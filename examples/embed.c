/* kipp in a C program: opens a model and asks it what the arguments say, one turn each, as one
 * conversation.
 *
 *     embed MODEL.gguf "Hello!" "Tell me a story about a lost kite."
 */
#include <kipp/kipp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TURNS = 16, MAX_PROMPT = 2048, MAX_ANSWER = 4096 };

/* An answer as it comes: to the reader, and kept for the next turn. */
struct answer {
  char text[MAX_ANSWER];
  size_t bytes;
};

static int32_t on_text(void* user, int32_t token, const char* text, size_t bytes) {
  struct answer* answer = user;
  (void)token;
  if (bytes >= sizeof answer->text - answer->bytes) return 1; /* stop: no room for more */
  memcpy(answer->text + answer->bytes, text, bytes);
  answer->bytes += bytes;
  answer->text[answer->bytes] = '\0';
  fwrite(text, 1, bytes, stdout);
  fflush(stdout);
  return 0;
}

static void check(kipp_status status) {
  if (status == KIPP_OK) return;
  fprintf(stderr, "embed: %s\n", kipp_last_error());
  exit(1);
}

int main(int argc, char** argv) {
  if (argc < 3 || argc - 2 > MAX_TURNS) {
    fprintf(stderr, "usage: embed MODEL.gguf MESSAGE [MESSAGE ...]\n");
    return 2;
  }
  kipp_model_options model_options = {.size = sizeof model_options,
                                      .backend = "cpu",
                                      .kv_policy = "bf16",
                                      .kv_blocks = MAX_PROMPT / 32};
  kipp_model* model;
  check(kipp_model_open(argv[1], &model_options, &model));
  kipp_session_options session_options = {.size = sizeof session_options, .capacity = MAX_PROMPT};
  kipp_session* session;
  check(kipp_session_open(model, &session_options, &session));

  static struct answer answers[MAX_TURNS];
  static kipp_chat_message messages[2 * MAX_TURNS];
  static int32_t prompt[MAX_PROMPT];
  kipp_generate_options options = {.size = sizeof options, .max_tokens = 80, .text = on_text};
  size_t n_messages = 0;
  for (int turn = 0; turn < argc - 2; ++turn) {
    messages[n_messages++] = (kipp_chat_message){.role = "user", .content = argv[2 + turn]};
    size_t n;
    check(kipp_chat_prompt(model, messages, n_messages, NULL, prompt, MAX_PROMPT, &n));
    options.user = &answers[turn];
    kipp_generation generation = {.size = sizeof generation};
    check(kipp_session_generate(session, prompt, n, &options, &generation));
    printf("\n");
    fflush(stdout);
    fprintf(stderr, "turn %d: %d tokens in the prompt, %d of them reused, %d drawn\n", turn + 1,
            (int)generation.prompt_tokens, (int)generation.reused_tokens,
            (int)generation.drawn_tokens);
    messages[n_messages++] =
        (kipp_chat_message){.role = "assistant", .content = answers[turn].text};
  }

  check(kipp_session_close(session));
  check(kipp_model_close(model));
  return 0;
}
