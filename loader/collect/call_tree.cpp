// SPDX-License-Identifier: Apache-2.0
#include "loader/collect/call_tree.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace hostrange {
namespace {

// The record's header, if the record is as long as its header says.
std::optional<hostrange_tree_header> read_header(std::span<const std::byte> record) {
    hostrange_tree_header header;
    if (record.size() < sizeof header) return std::nullopt;
    std::memcpy(&header, record.data(), sizeof header);
    if (header.scope_count > HOSTRANGE_TREE_SCOPES) return std::nullopt;
    if (record.size() != sizeof header + header.scope_count * sizeof(hostrange_scope)) return std::nullopt;
    return header;
}

bool has_exited(const hostrange_scope& scope) {
    const std::uint32_t ending = HOSTRANGE_SCOPE_ENDING(scope.ending);
    return ending == HOSTRANGE_ENDED_BY_EXIT || ending == HOSTRANGE_ENDED_LATE;
}

std::uint64_t count_exits(std::span<const hostrange_scope> scopes) {
    return std::count_if(scopes.begin(), scopes.end(), has_exited);
}

void append_scopes(std::vector<hostrange_scope>& scopes, std::span<const std::byte> record, std::size_t count) {
    if (count == 0) return;
    const std::size_t before = scopes.size();
    scopes.resize(before + count);
    std::memcpy(&scopes[before], record.data() + sizeof(hostrange_tree_header), count * sizeof(hostrange_scope));
}

void describe(CallTree& tree, const hostrange_tree_header& header) {
    tree.process = {header.process_id, header.process_start_ns};
    tree.thread_id = header.thread_id;
    tree.comm.assign(header.comm, strnlen(header.comm, sizeof header.comm));
    tree.unfinished = header.flags & HOSTRANGE_TREE_UNFINISHED;
}

}  // namespace

const CallTree* TreeAssembler::add(std::span<const std::byte> record) {
    const std::optional<hostrange_tree_header> header = read_header(record);
    if (!header) {
        ++losses_.malformed_records;
        return nullptr;
    }
    const bool is_last = header->flags & HOSTRANGE_TREE_LAST;
    const bool parts_lost = header->flags & HOSTRANGE_TREE_PARTS_LOST;

    if (header->flags & HOSTRANGE_TREE_DETACHED) {
        const CallTree* tree = whole_tree(*header, record);
        return tree && end_late(*tree) ? nullptr : tree;
    }
    auto found = pending_.empty() ? pending_.end() : pending_.find(header->thread_id);
    if (found != pending_.end()) {
        const Pending& pending = found->second;
        const ProcessKey process{header->process_id, header->process_start_ns};
        // A broken tree goes on under its number. An undamaged part 0 is another tree all the same: the thread that had
        // this id is gone.
        const bool goes_on =
            pending.tree.process == process && pending.number == header->tree && (header->part != 0 || parts_lost);
        if (!goes_on) {
            drop(found->second);
            pending_.erase(found);
            found = pending_.end();
        }
    }

    // Most trees fit into one record.
    if (found == pending_.end() && is_last && header->part == 0 && !parts_lost) return whole_tree(*header, record);

    if (found == pending_.end()) {
        found = pending_.try_emplace(header->thread_id).first;
        found->second.number = header->tree;
    }
    Pending& pending = found->second;
    describe(pending.tree, *header);
    const std::size_t before = pending.tree.scopes.size();
    append_scopes(pending.tree.scopes, record, header->scope_count);
    for (std::size_t i = before; i < pending.tree.scopes.size(); ++i) {
        const hostrange_scope& scope = pending.tree.scopes[i];
        if (!has_exited(scope)) pending.unwound[{scope.site, scope.start_ns}] = i;
    }
    if (pending.broken || parts_lost || header->part != pending.next_part) {
        drop(pending);
        if (is_last) pending_.erase(found);
        return nullptr;
    }
    ++pending.next_part;

    if (is_last) {
        pending.tree.is_rest = pending.split;
        current_ = std::move(pending.tree);
        pending_.erase(found);
        return current_.scopes.empty() ? nullptr : &current_;
    }
    if (pending.tree.scopes.size() < max_tree_scopes_) return nullptr;
    hand_on_piece(pending);
    return &current_;
}

// Whether this is the late end of a scope in a tree that waits for more; then it has been ended there.
bool TreeAssembler::end_late(const CallTree& late) {
    if (late.scopes.size() != 1 || HOSTRANGE_SCOPE_ENDING(late.scopes[0].ending) != HOSTRANGE_ENDED_LATE) return false;
    const auto found = pending_.find(late.thread_id);
    if (found == pending_.end() || found->second.tree.process != late.process) return false;
    Pending& pending = found->second;
    const auto unwound = pending.unwound.find({late.scopes[0].site, late.scopes[0].start_ns});
    if (unwound == pending.unwound.end()) return false;
    hostrange_scope& scope = pending.tree.scopes[unwound->second];
    scope.ending = HOSTRANGE_ENDED_BY_EXIT;
    scope.duration_ns = late.scopes[0].duration_ns;
    pending.unwound.erase(unwound);
    return true;
}

const CallTree* TreeAssembler::whole_tree(const hostrange_tree_header& header, std::span<const std::byte> record) {
    current_.scopes.clear();
    current_.is_rest = current_.goes_on = false;
    append_scopes(current_.scopes, record, header.scope_count);
    describe(current_, header);
    return current_.scopes.empty() ? nullptr : &current_;
}

void TreeAssembler::drop(Pending& pending) {
    if (!pending.broken) ++losses_.broken_trees;
    pending.broken = true;
    losses_.broken_tree_scopes += count_exits(pending.tree.scopes);
    pending.tree.scopes = {};
    pending.unwound.clear();
}

void TreeAssembler::hand_on_piece(Pending& pending) {
    if (!pending.split) ++losses_.split_trees;
    pending.tree.unfinished = true;
    pending.tree.is_rest = pending.split;
    pending.tree.goes_on = true;
    pending.split = true;
    std::swap(current_, pending.tree);
    pending.tree = {};
    pending.tree.process = current_.process;  // by which the next part is known
    pending.unwound.clear();
}

std::uint64_t TreeAssembler::pending_scopes() const {
    std::uint64_t count = 0;
    for (const auto& [thread, pending] : pending_) count += count_exits(pending.tree.scopes);
    return count;
}

}  // namespace hostrange
