// SPDX-License-Identifier: Apache-2.0
#include "loader/collect/mark_log.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace hostrange {
namespace {

constexpr const char* kEllipsis = "…";
constexpr const char* kUnreadable = "?";

}  // namespace

void MarkLog::add(std::span<const std::byte> record) {
    hostrange_mark mark;
    if (record.size() != sizeof mark) {
        ++losses_.malformed;
        return;
    }
    std::memcpy(&mark, record.data(), sizeof mark);
    if (mark.text_bytes > sizeof mark.text || mark.text_number >= HOSTRANGE_MARK_TEXTS ||
        mark.kind >= HOSTRANGE_MARK_KINDS) {
        ++losses_.malformed;
        return;
    }
    Texts& texts = pieces_[mark.thread_id];
    std::string& text = texts.text[mark.text_number];
    text.append(mark.text, mark.text_bytes);
    if (mark.flags & HOSTRANGE_MARK_CUT) {
        ++losses_.cut;
        // Not in the middle of a character.
        while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xc0) == 0x80) text.pop_back();
        if (!text.empty() && static_cast<unsigned char>(text.back()) >= 0xc0) text.pop_back();
        text += kEllipsis;
    }
    if (mark.flags & HOSTRANGE_MARK_UNREADABLE) {
        ++losses_.unreadable;
        if (text.empty()) text = kUnreadable;
    }
    if (mark.kind == HOSTRANGE_MARK_TEXT) return;
    const Texts all = std::move(texts);
    pieces_.erase(mark.thread_id);
    const std::string& name = all.text[0];

    switch (mark.kind) {
        case HOSTRANGE_MARK_NAME:
            if (on_range_name) on_range_name(static_cast<std::uint32_t>(mark.numbers[0]), name);
            break;
        case HOSTRANGE_MARK_SESSION_BEGIN:
            ++sessions_;
            break;
        case HOSTRANGE_MARK_CASE_BEGIN:
            change(mark, [&](Moment& moment) {
                if (moment.test_case != kNoCase) ++losses_.unbalanced;
                moment = {.run = ++runs_, .test_case = case_number(all)};
                ++cases_[moment.test_case].runs;
            });
            break;
        case HOSTRANGE_MARK_CASE_END:
            change(mark, [&](Moment& moment) {
                if (moment.test_case == kNoCase || moment.phase != kNoPhase) ++losses_.unbalanced;
                moment = {};
            });
            break;
        case HOSTRANGE_MARK_PHASE_BEGIN:
            change(mark, [&](Moment& moment) {
                if (moment.phase != kNoPhase) ++losses_.unbalanced;
                moment.phase = static_cast<std::uint32_t>(phase_number(name));
                cases_[moment.test_case].has_phases = true;
            });
            break;
        case HOSTRANGE_MARK_PHASE_END:
            change(mark, [&](Moment& moment) {
                if (moment.phase == kNoPhase || phase_names_[moment.phase] != name) ++losses_.unbalanced;
                moment.phase = kNoPhase;
            });
            break;
        case HOSTRANGE_MARK_MEASUREMENT: {
            const ProcessKey process{mark.process_id, mark.process_start_ns};
            const Moment moment = at(process, mark.time_ns);
            const Measurement measured{
                .process = process,
                .name = name,
                .phase = moment.phase == kNoPhase ? Phase::kWarm : static_cast<Phase>(moment.phase),
                .count = mark.numbers[0],
                .mean_ns = std::bit_cast<double>(static_cast<std::uint64_t>(mark.numbers[1])),
                .median_ns = std::bit_cast<double>(static_cast<std::uint64_t>(mark.numbers[2]))};
            auto& list = cases_[moment.test_case].measurements;
            std::erase_if(list, [&](const Measurement& one) {
                return one.name == name && one.phase == measured.phase &&
                       (moment.test_case != kNoCase || one.process == process);
            });
            list.push_back(measured);
            break;
        }
        default:
            break;
    }
}

// Marks of several threads may arrive a little out of order.
void MarkLog::change(const hostrange_mark& mark, const std::function<void(Moment&)>& how) {
    std::vector<Change>& changes = changes_[{mark.process_id, mark.process_start_ns}];
    const auto next = std::upper_bound(changes.begin(), changes.end(), mark.time_ns,
                                       [](std::uint64_t time, const Change& one) { return time < one.from_ns; });
    Change change{mark.time_ns, next == changes.begin() ? Moment{} : std::prev(next)->moment};
    how(change.moment);
    changes.insert(next, change);
}

MarkLog::Moment MarkLog::at(const ProcessKey& process, std::uint64_t time_ns) const {
    const auto found = changes_.find(process);
    if (found == changes_.end()) return {};
    const std::vector<Change>& changes = found->second;
    const auto next = std::upper_bound(changes.begin(), changes.end(), time_ns,
                                       [](std::uint64_t time, const Change& one) { return time < one.from_ns; });
    return next == changes.begin() ? Moment{} : std::prev(next)->moment;
}

std::uint32_t MarkLog::case_number(Texts texts) {
    auto& [nodeid, operator_name, backend] = texts.text;
    const auto [entry, is_new] =
        case_numbers_.try_emplace({nodeid, operator_name, backend}, static_cast<std::uint32_t>(cases_.size()));
    if (is_new) {
        cases_.emplace_back();
        cases_.back().nodeid = std::move(nodeid);
        cases_.back().operator_name = std::move(operator_name);
        cases_.back().backend = std::move(backend);
    }
    return entry->second;
}

Phase MarkLog::phase_number(const std::string& name) {
    const auto found = std::find(phase_names_.begin(), phase_names_.end(), name);
    const auto number = static_cast<std::uint32_t>(found - phase_names_.begin());
    if (found == phase_names_.end()) phase_names_.push_back(name);
    return static_cast<Phase>(number);
}

std::string_view MarkLog::phase_name(Phase phase) const {
    const auto number = static_cast<std::size_t>(phase);
    return number < phase_names_.size() ? std::string_view(phase_names_[number]) : "?";
}

}  // namespace hostrange
