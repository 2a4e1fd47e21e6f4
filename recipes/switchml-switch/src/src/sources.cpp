// SPDX-License-Identifier: BSD-3-Clause
#include "sources.hpp"

namespace switchml::softswitch {

SourceDrops &DroppedSources::of(const wire::Endpoint &source) {
    const auto found = places_.find(source);
    if (found != places_.end()) {
        latest_.splice(latest_.begin(), latest_, found->second);
        return latest_.front().drops;
    }
    if (latest_.size() == kMaxSources) {
        const DroppedSource &oldest = latest_.back();
        others_.unknown_worker += oldest.drops.unknown_worker;
        others_.malformed += oldest.drops.malformed;
        places_.erase(oldest.source);
        latest_.pop_back();
    }
    latest_.push_front({source, {}});
    places_[source] = latest_.begin();
    return latest_.front().drops;
}

SourceReport DroppedSources::report() const { return {{latest_.begin(), latest_.end()}, others_}; }

}  // namespace switchml::softswitch
