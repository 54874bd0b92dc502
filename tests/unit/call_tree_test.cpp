// SPDX-License-Identifier: Apache-2.0
#include "loader/collect/call_tree.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace hostrange {
namespace {

using Record = std::vector<std::byte>;

struct Part {
    std::uint64_t tree = 0;
    std::uint32_t part = 0;
    std::uint32_t flags = 0;
    std::vector<hostrange_scope> scopes;
    std::uint32_t process_id = 100, thread_id = 101;
    std::uint64_t process_start_ns = 5;
};

Record record_of(const Part& part) {
    hostrange_tree_header header{};
    header.process_start_ns = part.process_start_ns;
    header.tree = part.tree;
    header.process_id = part.process_id;
    header.thread_id = part.thread_id;
    header.part = part.part;
    header.scope_count = part.scopes.size();
    header.flags = part.flags;
    std::memcpy(header.comm, "python3", 8);
    Record record(sizeof header + part.scopes.size() * sizeof(hostrange_scope));
    std::memcpy(record.data(), &header, sizeof header);
    if (!part.scopes.empty()) {
        std::memcpy(record.data() + sizeof header, part.scopes.data(), record.size() - sizeof header);
    }
    return record;
}

hostrange_scope scope(std::uint32_t id, std::uint32_t parent, std::uint64_t duration_ns = 10,
                      std::uint32_t ending = HOSTRANGE_ENDED_BY_EXIT) {
    return {.site = 0, .id = id, .parent = parent, .ending = ending, .start_ns = 0, .duration_ns = duration_ns};
}

std::vector<std::uint32_t> ids_of(const CallTree& tree) {
    std::vector<std::uint32_t> ids;
    for (const hostrange_scope& one : tree.scopes) ids.push_back(one.id);
    return ids;
}

TEST(TreeAssembler, OneRecordIsATree) {
    TreeAssembler assembler;
    const CallTree* tree =
        assembler.add(record_of({.flags = HOSTRANGE_TREE_LAST, .scopes = {scope(2, 1), scope(1, 0)}}));
    ASSERT_NE(tree, nullptr);
    EXPECT_EQ(tree->process, (ProcessKey{100, 5}));
    EXPECT_EQ(tree->thread_id, 101u);
    EXPECT_EQ(tree->comm, "python3");
    EXPECT_FALSE(tree->unfinished);
    EXPECT_EQ(ids_of(*tree), (std::vector<std::uint32_t>{2, 1}));
    EXPECT_EQ(assembler.pending_scopes(), 0u);
}

TEST(TreeAssembler, UnfinishedIsHandedOn) {
    TreeAssembler assembler;
    const CallTree* tree =
        assembler.add(record_of({.flags = HOSTRANGE_TREE_LAST | HOSTRANGE_TREE_UNFINISHED, .scopes = {scope(2, 1)}}));
    ASSERT_NE(tree, nullptr);
    EXPECT_TRUE(tree->unfinished);
}

TEST(TreeAssembler, ALateEndIsPutIntoTheTreeThatWaits) {
    constexpr std::uint32_t kAlone = HOSTRANGE_TREE_LAST | HOSTRANGE_TREE_DETACHED;
    TreeAssembler assembler;
    hostrange_scope unwound = scope(2, 1, 5, HOSTRANGE_ENDED_ABANDONED);
    unwound.start_ns = 9;
    assembler.add(record_of({.scopes = {scope(3, 2), unwound}}));
    EXPECT_EQ(assembler.pending_scopes(), 1u);
    hostrange_scope end = unwound;
    end.ending = HOSTRANGE_ENDED_LATE;
    end.duration_ns = 70;
    const Record late = record_of({.flags = kAlone, .scopes = {end}});
    EXPECT_EQ(assembler.add(late), nullptr);
    const CallTree* tree = assembler.add(record_of({.part = 1, .flags = HOSTRANGE_TREE_LAST, .scopes = {scope(1, 0)}}));
    ASSERT_NE(tree, nullptr);
    EXPECT_EQ(ids_of(*tree), (std::vector<std::uint32_t>{3, 2, 1}));
    EXPECT_EQ(tree->scopes[0].duration_ns, 10u);
    EXPECT_EQ(tree->scopes[1].ending, static_cast<std::uint32_t>(HOSTRANGE_ENDED_BY_EXIT));
    EXPECT_EQ(tree->scopes[1].duration_ns, 70u);
    // None waits now: it is handed on.
    ASSERT_NE(tree = assembler.add(late), nullptr);
    EXPECT_EQ(tree->scopes[0].ending, static_cast<std::uint32_t>(HOSTRANGE_ENDED_LATE));
}

TEST(TreeAssembler, ALateEndOfAnotherProcessOrScopeIsHandedOn) {
    constexpr std::uint32_t kAlone = HOSTRANGE_TREE_LAST | HOSTRANGE_TREE_DETACHED;
    TreeAssembler assembler;
    assembler.add(record_of({.scopes = {scope(2, 1, 5, HOSTRANGE_ENDED_ABANDONED)}}));
    hostrange_scope late = scope(1, 0, 70, HOSTRANGE_ENDED_LATE);
    EXPECT_NE(assembler.add(record_of({.flags = kAlone, .scopes = {late}, .process_start_ns = 6})), nullptr);
    EXPECT_NE(assembler.add(record_of({.flags = kAlone, .scopes = {late}, .thread_id = 102})), nullptr);
    late.start_ns = 1;
    EXPECT_NE(assembler.add(record_of({.flags = kAlone, .scopes = {late}})), nullptr);
    late.start_ns = 0;
    late.site = 1;
    EXPECT_NE(assembler.add(record_of({.flags = kAlone, .scopes = {late}})), nullptr);
}

TEST(TreeAssembler, PartsAreJoinedAcrossThreads) {
    TreeAssembler assembler;
    EXPECT_EQ(assembler.add(record_of({.scopes = {scope(3, 2), scope(4, 2, 1, HOSTRANGE_ENDED_ABANDONED)}})), nullptr);
    EXPECT_EQ(assembler.add(record_of({.tree = 7, .scopes = {scope(2, 1)}, .thread_id = 102})), nullptr);
    EXPECT_EQ(assembler.pending_scopes(), 2u);
    EXPECT_EQ(assembler.add(record_of({.part = 1, .scopes = {scope(2, 1)}})), nullptr);
    const CallTree* tree = assembler.add(record_of({.part = 2, .flags = HOSTRANGE_TREE_LAST, .scopes = {scope(1, 0)}}));
    ASSERT_NE(tree, nullptr);
    EXPECT_EQ(ids_of(*tree), (std::vector<std::uint32_t>{3, 4, 2, 1}));
    tree = assembler.add(
        record_of({.tree = 7, .part = 1, .flags = HOSTRANGE_TREE_LAST, .scopes = {scope(1, 0)}, .thread_id = 102}));
    ASSERT_NE(tree, nullptr);
    EXPECT_EQ(ids_of(*tree), (std::vector<std::uint32_t>{2, 1}));
    EXPECT_EQ(assembler.losses().broken_trees, 0u);
    EXPECT_EQ(assembler.pending_scopes(), 0u);
}

TEST(TreeAssembler, AGapInThePartsBreaksTheTreeOnce) {
    TreeAssembler assembler;
    assembler.add(record_of({.scopes = {scope(5, 1), scope(6, 1, 1, HOSTRANGE_ENDED_BY_EXCEPTION)}}));
    EXPECT_EQ(assembler.add(record_of({.part = 2, .scopes = {scope(7, 1)}})), nullptr);
    EXPECT_EQ(assembler.add(record_of({.part = 3, .scopes = {scope(8, 1)}})), nullptr);
    EXPECT_EQ(assembler.add(record_of({.part = 4, .flags = HOSTRANGE_TREE_LAST, .scopes = {scope(1, 0)}})), nullptr);
    EXPECT_EQ(assembler.losses().broken_trees, 1u);
    EXPECT_EQ(assembler.losses().broken_tree_scopes, 4u);
    EXPECT_EQ(assembler.pending_scopes(), 0u);
    EXPECT_NE(assembler.add(record_of({.tree = 1, .flags = HOSTRANGE_TREE_LAST, .scopes = {scope(1, 0)}})), nullptr);
}

TEST(TreeAssembler, ALostFirstPartIsSeenByItsFlag) {
    TreeAssembler assembler;
    EXPECT_EQ(
        assembler.add(record_of({.flags = HOSTRANGE_TREE_LAST | HOSTRANGE_TREE_PARTS_LOST, .scopes = {scope(1, 0)}})),
        nullptr);
    EXPECT_EQ(assembler.losses().broken_trees, 1u);
    EXPECT_EQ(assembler.losses().broken_tree_scopes, 1u);
}

TEST(TreeAssembler, ALostMiddlePartIsSeenByItsFlag) {
    TreeAssembler assembler;
    assembler.add(record_of({.scopes = {scope(2, 1)}}));
    // The number of the part is given again after a loss.
    EXPECT_EQ(assembler.add(record_of({.part = 1, .flags = HOSTRANGE_TREE_PARTS_LOST, .scopes = {scope(3, 1)}})),
              nullptr);
    EXPECT_EQ(assembler.add(record_of(
                  {.part = 2, .flags = HOSTRANGE_TREE_LAST | HOSTRANGE_TREE_PARTS_LOST, .scopes = {scope(1, 0)}})),
              nullptr);
    EXPECT_EQ(assembler.losses().broken_trees, 1u);
    EXPECT_EQ(assembler.losses().broken_tree_scopes, 3u);
}

TEST(TreeAssembler, ANewTreeDropsAnOlderOne) {
    TreeAssembler assembler;
    assembler.add(record_of({.scopes = {scope(2, 1)}}));
    EXPECT_NE(assembler.add(record_of({.tree = 1, .flags = HOSTRANGE_TREE_LAST, .scopes = {scope(1, 0)}})), nullptr);
    EXPECT_EQ(assembler.losses().broken_trees, 1u);
    EXPECT_EQ(assembler.losses().broken_tree_scopes, 1u);
}

TEST(TreeAssembler, AThreadIdUsedAgainDropsTheOldTree) {
    TreeAssembler assembler;
    assembler.add(record_of({.scopes = {scope(2, 1)}}));
    const CallTree* tree = assembler.add(
        record_of({.flags = HOSTRANGE_TREE_LAST, .scopes = {scope(1, 0)}, .process_id = 200, .process_start_ns = 9}));
    ASSERT_NE(tree, nullptr);
    EXPECT_EQ(tree->process, (ProcessKey{200, 9}));
    EXPECT_EQ(ids_of(*tree), (std::vector<std::uint32_t>{1}));
    EXPECT_EQ(assembler.losses().broken_trees, 1u);

    // In the same process, under the same tree number.
    assembler.add(record_of({.scopes = {scope(2, 1)}}));
    tree = assembler.add(record_of({.flags = HOSTRANGE_TREE_LAST, .scopes = {scope(1, 0)}}));
    ASSERT_NE(tree, nullptr);
    EXPECT_EQ(ids_of(*tree), (std::vector<std::uint32_t>{1}));
    EXPECT_EQ(assembler.losses().broken_trees, 2u);

    // A later part of a tree whose beginning was never seen, while another process's tree is pending.
    assembler.add(record_of({.scopes = {scope(2, 1)}}));
    EXPECT_EQ(
        assembler.add(record_of({.part = 1, .flags = HOSTRANGE_TREE_LAST, .scopes = {scope(1, 0)}, .process_id = 200})),
        nullptr);
    EXPECT_EQ(assembler.losses().broken_trees, 4u);
    EXPECT_EQ(assembler.pending_scopes(), 0u);
}

TEST(TreeAssembler, RecordsOfWrongSizeAreCounted) {
    TreeAssembler assembler;
    Record record = record_of({.flags = HOSTRANGE_TREE_LAST, .scopes = {scope(2, 1), scope(1, 0)}});
    for (std::size_t size = 0; size < record.size(); ++size) {
        EXPECT_EQ(assembler.add(std::span(record).first(size)), nullptr) << size;
    }
    EXPECT_EQ(assembler.losses().malformed_records, record.size());
    record.push_back({});
    EXPECT_EQ(assembler.add(record), nullptr);
    EXPECT_EQ(assembler.add(record_of(
                  {.flags = HOSTRANGE_TREE_LAST, .scopes = std::vector<hostrange_scope>(HOSTRANGE_TREE_SCOPES + 1)})),
              nullptr);
    EXPECT_EQ(assembler.losses().malformed_records, record.size() + 1);
}

TEST(TreeAssembler, AnEmptyTreeIsNone) {
    TreeAssembler assembler;
    EXPECT_EQ(assembler.add(record_of({.flags = HOSTRANGE_TREE_LAST, .scopes = {}})), nullptr);
    EXPECT_EQ(assembler.losses().malformed_records + assembler.losses().broken_trees, 0u);
}

TEST(TreeAssembler, CommandNameNeedsNoEnd) {
    TreeAssembler assembler;
    Record record = record_of({.flags = HOSTRANGE_TREE_LAST, .scopes = {scope(1, 0)}});
    std::memset(record.data() + offsetof(hostrange_tree_header, comm), 'x', HOSTRANGE_COMM_SIZE);
    const CallTree* tree = assembler.add(record);
    ASSERT_NE(tree, nullptr);
    EXPECT_EQ(tree->comm, std::string(HOSTRANGE_COMM_SIZE, 'x'));
}

TEST(TreeAssembler, ATreeTooLongIsHandedOnInPieces) {
    TreeAssembler assembler;
    std::uint32_t next_id = 2, part = 0;
    std::size_t pieces = 0, scopes = 0;
    const auto take = [&](const CallTree* tree, bool is_last) {
        if (!tree) return;
        ++pieces;
        scopes += tree->scopes.size();
        EXPECT_EQ(tree->unfinished, !is_last);
        EXPECT_LE(tree->scopes.size(), TreeAssembler::kMaxTreeScopes + HOSTRANGE_TREE_SCOPES);
        EXPECT_EQ(tree->is_rest, pieces > 1);
        EXPECT_EQ(tree->goes_on, !is_last);
    };
    const std::size_t parts = 2 * TreeAssembler::kMaxTreeScopes / HOSTRANGE_TREE_SCOPES + 5;
    for (std::size_t i = 0; i < parts; ++i) {
        Part one{.part = part++, .scopes = {}};
        for (int k = 0; k < HOSTRANGE_TREE_SCOPES; ++k) one.scopes.push_back(scope(next_id++, 1, 3));
        take(assembler.add(record_of(one)), false);
    }
    take(assembler.add(record_of({.part = part, .flags = HOSTRANGE_TREE_LAST, .scopes = {scope(1, 0)}})), true);
    EXPECT_EQ(pieces, 3u);
    EXPECT_EQ(scopes, next_id - 1u);
    EXPECT_EQ(assembler.losses().split_trees, 1u);
    EXPECT_EQ(assembler.losses().broken_trees, 0u);
}

// Random threads, trees, losses: every scope is handed on, dropped with its tree, or pending.
TEST(TreeAssembler, NothingIsLostSilently) {
    std::mt19937_64 random(1);
    TreeAssembler assembler;
    struct Thread {
        std::uint64_t tree = 0;
        std::uint32_t part = 0;
        bool lost = false;
    };
    std::vector<Thread> threads(5);
    std::uint64_t sent = 0, handed_on = 0, whole_trees = 0, expected_whole = 0;
    for (int step = 0; step < 20'000; ++step) {
        const std::size_t which = random() % threads.size();
        Thread& thread = threads[which];
        const bool is_last = random() % 3 == 0;
        Part part{
            .tree = thread.tree, .part = thread.part, .scopes = {}, .thread_id = static_cast<std::uint32_t>(which)};
        part.flags = (is_last ? HOSTRANGE_TREE_LAST : 0) | (thread.lost ? HOSTRANGE_TREE_PARTS_LOST : 0);
        part.scopes.resize(1 + random() % 4);
        const bool finds_room = random() % 20 != 0;
        if (finds_room) {
            sent += part.scopes.size();
            ++thread.part;
            const CallTree* tree = assembler.add(record_of(part));
            EXPECT_EQ(tree != nullptr, is_last && !thread.lost);
            if (tree) handed_on += tree->scopes.size();
            whole_trees += tree != nullptr;
        } else {
            thread.lost = true;
        }
        if (is_last) {
            expected_whole += !thread.lost;
            thread = {.tree = thread.tree + 1};
        }
    }
    EXPECT_EQ(whole_trees, expected_whole);
    EXPECT_EQ(sent, handed_on + assembler.losses().broken_tree_scopes + assembler.pending_scopes());
    EXPECT_GT(assembler.losses().broken_trees, 100u);
}

}  // namespace
}  // namespace hostrange
