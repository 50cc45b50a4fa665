"""Seeded addressing faults: small wrong edits of the sources, each of which some test must catch.

`tools/mutation_study.py` applies them one at a time to a copy of the tree and says which test noticed first;
`tests/python/test_mutations.py` checks that every edit still finds its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PLAN = "src/model/step_plan.cc"
ROPE = "src/model/rope.cc"
PAGED_KV = "src/backend/paged_kv.h"
CPU_OPS = "src/backend/cpu/cpu_ops.cc"
CPU_PAGES = "src/backend/cpu/paged_attention.cc"
CPU_CUT = "src/backend/cpu/attention_plan.cc"
CPU_TILE = "src/backend/cpu/attention_tile-inl.h"
CPU_PACK = "src/backend/cpu/matmul_pack.cc"
REFERENCE_OPS = "src/backend/reference/reference_ops.cc"
REFERENCE_MATH = "src/backend/reference/reference_math.cc"
TABLE = "src/kv/block_table.cc"
INDEX = "src/kv/prefix_index.cc"
POOL = "src/kv/block_pool.cc"
LEDGER = "src/kv/plane_ledger.cc"
TIERED_KV = "src/backend/tiered_kv.cc"
SESSION = "src/engine/session.cc"
SEQUENCE = "src/engine/sequence.cc"

KEYS = "T* keys(BlockId id, int layer, int kv_head) {\n    return head<T>(id, layer, "
VALUES = KEYS.replace("keys", "values")

# Test executables in the order in which the study asks them: the part alone, then what is built on it.
CPU = ["cpu_attention_test", "cpu_ops_test", "cpu_against_reference_test", "cpu_invariance_test"]
WEIGHTS = ["reference_math_test", "cpu_matmul_test", "cpu_against_reference_test"]
REFERENCE = ["reference_ops_test", "invariance_test", "cpu_against_reference_test"]
STEP = ["step_plan_test", "cpu_ops_test", "invariance_test", "cpu_against_reference_test"]
BOTH = ["reference_backend_test", "cpu_ops_test", "session_cache_test", "invariance_test"]
CACHE = ["prefix_index_test", "block_pool_test", "block_table_test", "session_cache_test", "engine_test"]
TIERS = ["plane_ledger_test", "tiered_pool_test"]
CODES = ["reference_tiered_test"]
ENGINE = ["session_test", "session_cache_test", "engine_test"]


@dataclass(frozen=True)
class Edit:
    file: str
    find: str  # occurs exactly once in the file
    replace: str


@dataclass(frozen=True)
class Mutation:
    fault: str  # what goes wrong, in words
    edits: list[Edit] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(edit.file for edit in self.edits))


def one(fault: str, tests: list[str], file: str, find: str, replace: str) -> Mutation:
    return Mutation(fault, [Edit(file, find, replace)], tests)


MUTATIONS = [
    # Blocks and slots
    one(
        "wrong block: attention takes logical blocks for physical ones",
        CPU, CPU_PAGES,
        "const BlockId id = step_->table(tile.item)[static_cast<std::size_t>(block)];",
        "const BlockId id = block;",
    ),
    one(
        "wrong block: every sequence of a step reads the first one's table",
        CPU, CPU_PAGES, "step_->table(tile.item)[", "step_->table(0)[",
    ),
    one(
        "wrong block: the reference writes by another item's table",
        REFERENCE, REFERENCE_OPS,
        "const BlockId block = step_->table(step_->item_of_row[row])[pos / kBlockPositions];",
        "const BlockId block = step_->table(step_->item_of_row[0])[pos / kBlockPositions];",
    ),
    one(
        "wrong slot: keys and values land one position late in their block",
        CPU, CPU_OPS, "pos % kBlockPositions * kHeadDim;", "(pos + 1) % kBlockPositions * kHeadDim;",
    ),
    one(
        "rollover: the first position of a block is written to the block before",
        CPU, CPU_OPS,
        "[pos / kBlockPositions];", "[(pos == 0 ? 0 : pos - 1) / kBlockPositions];",
    ),
    one(
        "rollover: the block that the last position has just begun is not read",
        CPU, CPU_PAGES,
        "blocks_for(tile.pos + tile.positions) - first);", "blocks_for(tile.pos + tile.positions - 1) - first);",
    ),
    one(
        "rollover: the reference reads the last position of a block from the next one",
        REFERENCE, REFERENCE_OPS,
        "return table[static_cast<std::size_t>(pos) / kBlockPositions];",
        "return table[std::min(table.size() - 1, static_cast<std::size_t>(pos + 1) / kBlockPositions)];",
    ),
    one(
        "wrong layer: layers overlap in a block",
        BOTH, PAGED_KV, "(layer * 2 + k_or_v)", "(layer + k_or_v)",
    ),
    Mutation(
        "K and V swapped in attention",
        [
            Edit(CPU_PAGES, ".keys = bytes(kv_.keys<std::uint16_t>(", ".keys = bytes(kv_.values<std::uint16_t>("),
            Edit(CPU_PAGES, ".values = bytes(kv_.values<std::uint16_t>(", ".values = bytes(kv_.keys<std::uint16_t>("),
        ],
        CPU,
    ),
    Mutation(
        "K and V swapped in the stored block, by writers and readers alike",
        [
            Edit(PAGED_KV, f"{KEYS}0, kv_head);", f"{KEYS}1, kv_head);"),
            Edit(PAGED_KV, f"{VALUES}1, kv_head);", f"{VALUES}0, kv_head);"),
        ],
        BOTH,
    ),
    one(
        "stale table: a step reads the block table of the step before",
        STEP, PLAN, "  plan_.blocks.clear();\n", "",
    ),
    one(
        "stale table: a block given up for its published equal stays in the table",
        CACHE, TABLE,
        "    block =\n        pool_->publish(", "        pool_->publish(",
    ),
    # Positions
    one(
        "RoPE one position late, everywhere",
        WEIGHTS[:1] + REFERENCE + ["pytest:test_oracle.py"], ROPE,
        "static_cast<double>(position) * inverse", "static_cast<double>(position + 1) * inverse",
    ),
    one(
        "RoPE one position late on one backend",
        CPU, CPU_OPS,
        "rope_angles(step.positions[static_cast<std::size_t>(r)],",
        "rope_angles(step.positions[static_cast<std::size_t>(r)] + 1,",
    ),
    one(
        "RoPE one position late when a single token is decoded",
        CPU, CPU_OPS,
        "rope_angles(step.positions[static_cast<std::size_t>(r)],",
        "rope_angles(step.positions[static_cast<std::size_t>(r)] + (step.rows() == 1 ? 1 : 0),",
    ),
    one(
        "the mask one position too wide",
        CPU, CPU_TILE,
        "return std::clamp(seen_ + q / heads_, 0, kBlockPositions);",
        "return std::clamp(seen_ + 1 + q / heads_, 0, kBlockPositions);",
    ),
    one(
        "the mask one position too wide in the reference",
        REFERENCE, REFERENCE_OPS,
        "const int cached = step_->positions[row] + 1;",
        "const int cached = std::min(step_->positions[row] + 2,\n"
        "                                static_cast<int>(step_->table(step_->item_of_row[row]).size()) * 32);",
    ),
    one(
        "the logits of the row before the one that was asked for",
        STEP, PLAN, "plan_.logit_rows.push_back(plan_.rows());",
        "plan_.logit_rows.push_back(std::max(0, plan_.rows() - 1));",
    ),
    # Heads, runs and scales
    one(
        "GQA: queries read the neighbouring KV head",
        CPU, CPU_PAGES,
        "kv_head_at(layer, part.kv_head, tile, first + b);", "kv_head_at(layer, part.kv_head ^ 1, tile, first + b);",
    ),
    one(
        "GQA: the reference interleaves query heads instead of grouping them",
        REFERENCE, REFERENCE_OPS,
        "dot(head_of(qkv.row(r), 0, g * group + q).data(), k, kHeadDim);",
        "dot(head_of(qkv.row(r), 0, q * kKvHeads + g).data(), k, kHeadDim);",
    ),
    one(
        "a merged attention run is skipped, within a thread",
        CPU, CPU_PAGES, "if (run > 0) merge_run(", "if (run > 1) merge_run(",
    ),
    one(
        "a merged attention run is skipped, between threads",
        CPU, CPU_PAGES,
        "for (int run = 1; run < tile.runs; ++run) {", "for (int run = 1; run + 1 < tile.runs; ++run) {",
    ),
    one(
        "two runs share the memory of their state",
        CPU, CPU_CUT, "(kv_head * tile.runs + run) * limits_.chains + chain",
        "(kv_head + run) * limits_.chains + chain",
    ),
    one(
        "the run's place is forgotten: each run masks as the first",
        CPU, CPU_PAGES, "tile.pos + 1 - run * kRunPositions, ahead", "tile.pos + 1, ahead",
    ),
    one(
        "the scale of another block, in the reference",
        WEIGHTS, REFERENCE_MATH,
        "decode_q8_0(at, block);", "decode_q8_0(c == 0 ? at : at - block_bytes, block);",
    ),
    # Sharing
    one(
        "missed copy-on-write: what must be copied is not",
        ENGINE, SESSION,
        "    model->backend().copy_blocks(std::span(&*block, 1));", "    static_cast<void>(block);",
    ),
    one(
        "missed copy-on-write: a published block that is cut is written in place",
        CACHE, TABLE,
        "  if (positions >= published_positions()) return std::nullopt;\n",
        "  n_published_ = std::min(n_published_, positions / kBlockPositions);\n"
        "  if (positions >= 0) return std::nullopt;\n",
    ),
    one(
        "copy-on-write the wrong way round",
        BOTH, PAGED_KV,
        "std::ranges::copy(block(c.from), block(c.to).begin());",
        "std::ranges::copy(block(c.to), block(c.from).begin());",
    ),
    one(
        "a fork shares the block that is being appended",
        CACHE, TABLE,
        "    fork.copy =\n        BlockCopy{.from = blocks_[static_cast<std::size_t>(full)], .to = fork.table.blocks_.back()};\n",
        "    fork.table.blocks_.back() = blocks_[static_cast<std::size_t>(full)];\n",
    ),
    Mutation(
        "a published block whose last token is wrong",
        [
            Edit(INDEX, "  std::ranges::copy(tokens, e.tokens.begin());\n",
                 "  std::ranges::copy(tokens, e.tokens.begin());\n  e.tokens.back() ^= 1;\n"),
            Edit(INDEX, "  e.hash = hash_after(parent, tokens, salt);", "  e.hash = hash_after(parent, e.tokens, salt);"),
        ],
        CACHE,
    ),
    Mutation(
        "a block is found whatever came before it",
        [
            Edit(INDEX, "return hash_(parent ? entry(*parent).hash : salt, tokens);", "return hash_(salt, tokens);"),
            Edit(INDEX, "e.parent == parent.value_or(kNone) && ", ""),
        ],
        CACHE,
    ),
    one(
        "a block is found by its hash alone",
        CACHE, INDEX,
        "if (e.hash == hash && e.parent == parent.value_or(kNone) && e.salt == salt &&\n"
        "        std::ranges::equal(e.tokens, tokens)) {",
        "if (e.hash == hash && e.salt == salt) {",
    ),
    Mutation(
        "a block is found under another salt",
        [
            Edit(INDEX, "entry(*parent).hash : salt, tokens);", "entry(*parent).hash : 0, tokens);"),
            Edit(INDEX, " && e.salt == salt &&", " &&"),
        ],
        CACHE,
    ),
    one(
        "the prefix found in the cache covers the whole prompt",
        CACHE, POOL, "while (tokens.size() > kBlockPositions) {", "while (tokens.size() >= kBlockPositions) {",
    ),
    one(
        "a block is evicted while it is pinned",
        CACHE, POOL, "if (!at(published).pinned()) remove_evictable(published);", "if (published < 0) remove_evictable(published);  // never",
    ),
    one(
        "a sequence counts one adopted position too many",
        ENGINE, SEQUENCE,
        "  evaluated_ = resumed.positions;\n", "  evaluated_ = resumed.positions + (skipped > 0 ? 1 : 0);\n",
    ),
    # Planes of a tiered block
    one(
        "planes: readers are counted for the plane beside",
        TIERS, LEDGER, "if (counts_[node(block, plane)]++ == 0)", "if (counts_[node(block, plane ^ 1)]++ == 0)",
    ),
    one(
        "planes: what was used last is dropped first",
        TIERS, LEDGER,
        "drop(oldest_ / kMaxPlanes, bit(oldest_ % kMaxPlanes));",
        "drop(newest_ / kMaxPlanes, bit(newest_ % kMaxPlanes));",
    ),
    one(
        "planes: what another still reads is given up",
        TIERS, LEDGER, "if (--count > 0) return;", "if (--count > 1) return;",
    ),
    one(
        "tiers: the recent band ends one block early",
        TIERS, LEDGER, "if (distance <= recent_blocks)", "if (distance < recent_blocks)",
    ),
    one(
        "tiers: the recent band ends one block late",
        TIERS, LEDGER, "if (distance <= recent_blocks)", "if (distance <= recent_blocks + 1)",
    ),
    one(
        "tiers: the mid band ends one block early",
        TIERS, LEDGER, "distance <= recent_blocks + mid_blocks)", "distance < recent_blocks + mid_blocks)",
    ),
    one(
        "tiers: one sink too few",
        TIERS, LEDGER, "return block < sink_blocks ? sink : at", "return block + 1 < sink_blocks ? sink : at",
    ),
    one(
        "tiers: a table lets go of planes one block too early",
        TIERS, TABLE, "need(block, plan.needed(query_block, block));", "need(block, plan.needed(query_block + 1, block));",
    ),
    one(
        "tiers: codes are made for what is read after the step, not within it",
        TIERS, TABLE,
        "completes ? plan.needed(block + 1, block) : 0", "completes ? plan.needed(end / kBlockPositions, block) : 0",
    ),
    one(
        "tiers: a block of drafts keeps no rows to go back to",
        TIERS, TABLE, "if (!whole || !final) planes |= plan.open;", "if (!whole) planes |= plan.open;",
    ),
    one(
        "tiers: a hit counts blocks that lack planes",
        TIERS, POOL, "readable(admission.blocks, {})", "admission.blocks.size()",
    ),
    one(
        "tiers: a duplicate keeps the planes that the published block has lost",
        TIERS, POOL, "static_cast<PlaneBits>(held(block) & ~held(*equal))", "PlaneBits{0}",
    ),
    one(
        "tiers: a block that is cut keeps its codes",
        TIERS, TABLE, "    pool_->shed(blocks_[static_cast<std::size_t>(open)], pool_->plan().open);\n", "",
    ),
    one(
        "tiers: a cut goes on in a published block",
        TIERS, TABLE, "if (block < n_published_ || block >= size()) return false;", "if (block >= size()) return false;",
    ),
    one(
        "tiers: a way back forgets that planes are gone",
        TIERS, TABLE,
        "if (readable < whole || !keeps_rows_of(whole)) return readable * kBlockPositions;",
        "if (!keeps_rows_of(whole)) return whole * kBlockPositions;",
    ),
    one(
        "tiers: a promise for planes is not returned",
        TIERS, POOL, "  reserved_ -= blocks;\n  quotas_ -= quota;\n", "  reserved_ -= blocks;\n",
    ),
    one(
        "wrong plane: the middle bits of codes are read from the top plane",
        CODES, TIERED_KV, "BitWidth::int4 ? at(Plane::mid2)", "BitWidth::int4 ? at(Plane::hi2)",
    ),
    one(
        "stale scale: a block coded anew keeps the scales of what was there before",
        CODES, TIERED_KV, "pair = 0; pair < planes_.pairs(side)", "pair = 1; pair < planes_.pairs(side)",
    ),
]
