// SPDX-License-Identifier: Apache-2.0
// The probes at markers.
#include "loader/attach/session_state.h"

namespace hostrange {
namespace {

// The cookie of a marker's site.
std::uint64_t mark_of(MarkerKind kind) {
    switch (kind) {
        case MarkerKind::kSessionBegin:
            return HOSTRANGE_MARK_SESSION_BEGIN;
        case MarkerKind::kSessionEnd:
            return HOSTRANGE_MARK_SESSION_END;
        case MarkerKind::kCaseBegin:
            return HOSTRANGE_MARK_CASE_BEGIN;
        case MarkerKind::kCaseEnd:
            return HOSTRANGE_MARK_CASE_END;
        case MarkerKind::kPhaseBegin:
            return HOSTRANGE_MARK_PHASE_BEGIN;
        case MarkerKind::kPhaseEnd:
            return HOSTRANGE_MARK_PHASE_END;
        case MarkerKind::kMeasurement:
            return HOSTRANGE_MARK_MEASUREMENT;
        case MarkerKind::kPause:
            return HOSTRANGE_MARK_PAUSE;
        case MarkerKind::kResume:
            return HOSTRANGE_MARK_RESUME;
        case MarkerKind::kRangeBegin:
        case MarkerKind::kRangeEnd:
        case MarkerKind::kProbed:
            break;
    }
    return 0;
}

}  // namespace

std::size_t ProbeSession::number_markers(const FilePlan& file, const MarkerPlan& markers) {
    State& state = *state_;
    const std::size_t first = state.sites.size();
    if (state.range_markers.count(file.identity)) return first;
    auto& [begin, end] = state.range_markers[file.identity];
    for (std::uint32_t i = 0; i < markers.sites.size(); ++i) {
        const MarkerKind kind = markers.sites[i].kind;
        if (kind != MarkerKind::kRangeBegin && kind != MarkerKind::kRangeEnd) continue;
        const bool begins = kind == MarkerKind::kRangeBegin;
        (begins ? begin : end) =
            state.number_site({file.identity, i, kMarkerRange, begins ? SiteKind::kEntry : SiteKind::kRet}, file);
    }
    return first;
}

int ProbeSession::attach_markers(const FilePlan& file, const MarkerPlan& markers, pid_t process) {
    State& state = *state_;
    const auto [begin, end] = state.range_markers.at(file.identity);
    std::vector<ProbePoint> marks, begins, ends;
    for (const MarkerSite& site : markers.sites) {
        ProbePoint point{site.file_offset, 0, site.semaphore_offset};
        switch (site.kind) {
            case MarkerKind::kProbed:
                break;
            case MarkerKind::kRangeBegin:
                point.cookie = HOSTRANGE_COOKIE(begin, kMarkerRange, 0, 0);
                begins.push_back(point);
                break;
            case MarkerKind::kRangeEnd:
                point.cookie = HOSTRANGE_COOKIE(end, kMarkerRange, 0, 0);
                ends.push_back(point);
                break;
            default:
                point.cookie = mark_of(site.kind);
                marks.push_back(point);
        }
    }
    const hostrange_bpf& skeleton = *state.skeleton;
    const std::pair<const bpf_program*, const std::vector<ProbePoint>*> rooms[] = {
        {skeleton.progs.marker_range_end, &ends},
        {skeleton.progs.marker_range_begin, &begins},
        {skeleton.progs.marker, &marks}};
    std::vector<Link> links;
    int placed = 0;
    for (const auto& [program, points] : rooms) {
        if (points->empty()) continue;
        int error = 0;
        std::vector<Link> attached = attach_points(program, state.mode, process, file.open_path, *points, false, error);
        if (error) return has_gone(file, error) ? 0 : -error;
        placed += static_cast<int>(points->size());
        std::move(attached.begin(), attached.end(), std::back_inserter(links));
    }
    state.lasting_links[{process, file.identity}] = std::move(links);
    return placed;
}

void ProbeSession::tell_probed(const FilePlan& file, const MarkerPlan& markers, pid_t process) {
    for (const MarkerSite& site : markers.sites) {
        if (site.kind != MarkerKind::kProbed) continue;
        int error = 0;
        std::vector<Link> links =
            attach_points(state_->skeleton->progs.scope_exit, state_->mode, process, file.open_path,
                          {{site.file_offset, kIgnored, site.semaphore_offset}}, false, error);
        std::move(links.begin(), links.end(), std::back_inserter(state_->probed_links[{process, file.identity}]));
    }
}

}  // namespace hostrange
