package rules

import (
	"maps"
	"slices"

	"isolane.dev/isolane/claims/formula"
	"isolane.dev/isolane/claims/role"
	"isolane.dev/isolane/claims/row"
)

// law relates figures of one configuration. If the left side is one figure, the right side is another way to
// compute it, or its limit. An equation needs two figures of the configuration itself.
type law struct {
	rule       string
	left       formula.Formula
	sign       string // = ≤ ≥, or "whole": the left side is a whole number and not 0
	right      formula.Formula
	each       string          // a name that takes each figure of a configuration in turn; others take one
	once       bool            // the left side has one value in a configuration
	same, stat bool            // the metrics are the same but for the words of their roles; the statistics are
	free       string          // names exempt from same
	plus       string          // names that add to the left side if the configuration has them
	more, less formula.Formula // by what the right side may be more or less, besides the printed digits
	or         formula.Formula // other right sides, used if their figures exist: any of the sides may hold
	about      float64         // tolerance, as a share of the right side
	in         row.Dimension   // unit for printing the sides
	so         string
	unless     func(i instance) bool   // the table says something that makes the law void
	soft       func(i instance) string // why a finding is only suspicious; "": it is not
}

const asked = 0.02 // a run is seldom exactly as long as requested

// Conclusions that several laws share.
const (
	wrong  = "One of the figures is wrong, or means something else."
	whole  = "A part is never more than the whole."
	beyond = "The unit or a figure is wrong, or it was several links, or none of those that the table names."
	few    = "Less than one sample is above it: this is the maximum, or computed between two samples."
)

// laws returns all laws, in base units: seconds, bytes, and either per second.
func laws() []law {
	return slices.Concat(products(), sums(), spreads(), limits(), hosts(), ways(), machines(), others(), twice())
}

// products returns the laws of rates, sizes and times.
func products() []law {
	all := []law{
		{rule: "product", left: "moved_bytes", sign: "=", right: "request_rate × object",
			more: "request_rate × head", unless: isLess},
		{rule: "product", left: "moved_bits", sign: "=", right: "request_rate × object × bits",
			more: "request_rate × head + request_rate × object × framing", unless: isLess},
		{rule: "product", left: "moved", sign: "=", right: "packet_rate × packet", more: "packet_rate × around",
			less: "packet_rate × around"},
		{rule: "product", left: "moved", sign: "=", right: "packet_rate × frame", more: "packet_rate × wire",
			less: "packet_rate × around", unless: saying(saysOutside)},
		{rule: "product", left: "stored", sign: "=", right: "iops × block"},
		{rule: "product", left: "requests", sign: "=", right: "request_rate × run", about: asked,
			unless: saying(saysNotMean)},
		{rule: "product", left: "packets", sign: "=", right: "packet_rate × run", about: asked,
			unless: saying(saysNotMean)},
		{rule: "product", left: "volume", sign: "=", right: "moved × run", about: asked,
			unless: saying(saysNotMean)},
		{rule: "product", left: "volume", sign: "=", right: "bitrate × run", about: asked, soft: maybeApart},
		{rule: "product", left: "run", sign: "=", right: "loops × interval", about: asked,
			or: "loops × interval ÷ workers"},
		{rule: "product", left: "energy", sign: "=", right: "power × run", about: asked, soft: maybeApart,
			unless: saying(saysNotMean)},
		{rule: "product", left: "per_power", sign: "=", right: "moved ÷ power", about: asked, soft: maybeApart},
		{rule: "product", left: "downtime", sign: "=", right: "( all − available ) × observed", about: asked},
	}
	for _, name := range slices.Sorted(maps.Keys(role.Events())) {
		all = append(all, law{rule: "product", left: formula.Formula(name), sign: "=", about: asked, same: true,
			right: formula.Formula(name + "_rate × run"), unless: saying(saysNotMean)})
	}
	return all
}

// sums returns the laws of parts and wholes.
func sums() []law {
	// nice and guest times count if a tool shows them: top includes them in the user's time, mpstat does not.
	const used = " − user − system − iowait − irq − softirq − steal"
	return []law{
		{rule: "balance", left: "lost", sign: "=", right: "sent − received", same: true,
			or: "sent − received + duplicates", unless: saying(saysMany), soft: maybeOthers},
		{rule: "balance", left: "lost_share", sign: "=", right: "( sent − received ) ÷ sent", same: true,
			or: "( sent − received + duplicates ) ÷ sent", unless: saying(saysMany), soft: maybeOthers},
		{rule: "balance", left: "lost_share", sign: "=", right: "lost ÷ sent", same: true,
			or: "lost ÷ ( sent + lost )", unless: isCounted},
		{rule: "balance", left: "lost_share", sign: "=", right: "( sent_rate − received_rate ) ÷ sent_rate",
			or: "( received_rate − sent_rate ) ÷ received_rate", unless: saying(saysMany), soft: maybeOthers},
		{rule: "balance", left: "lost_share", sign: "=", right: "( tx_count − rx_count ) ÷ tx_count",
			or: "( rx_count − tx_count ) ÷ rx_count", unless: saying(saysMany), soft: maybeOthers},
		{rule: "balance", left: "lost_rate", sign: "=", right: "sent_rate − received_rate",
			or: "received_rate − sent_rate", unless: saying(saysMany), soft: maybeOthers},
		{rule: "balance", left: "failed_share", sign: "=", right: "failed ÷ requests",
			or: "failed ÷ ( requests + failed )"},
		{rule: "balance", left: "resent_share", sign: "=", right: "resent ÷ sent",
			or: "resent ÷ ( sent + resent )"},
		{rule: "balance", left: "hit_rate", sign: "=", right: "hits ÷ requests",
			or: "hits ÷ ( hits + misses )"},
		{rule: "balance", left: "hit_rate", sign: "=", right: "hits ÷ ( hits + misses )", same: true,
			unless: ofRequests},
		{rule: "balance", left: "miss_rate", sign: "=", right: "misses ÷ ( hits + misses )", same: true,
			unless: ofRequests},
		{rule: "whole", left: "lost", sign: "≤", right: "sent", same: true, in: row.Count, so: whole},
		{rule: "whole", left: "cpu_use", sign: "≤", right: "cpus × all", in: row.Share,
			so: "A CPU is busy 100% of the time at most."},
		{rule: "whole", left: "miss", sign: "≤", right: "all − hit", same: true, in: row.Share,
			so: "The two are parts of one whole."},
		{rule: "whole", left: "idle", plus: "user nice system iowait irq softirq steal", sign: "≤", right: "all",
			or: "cpus", same: true, in: row.Share, unless: isInTotal, so: "They are parts of one whole."},
		{rule: "whole", left: "busy + idle", sign: "≤", right: "all", or: "cpus", same: true, in: row.Share,
			unless: severalCPUs, so: "The two are parts of one whole."},
		{rule: "whole", left: "reduced", sign: "≤", right: "all", in: row.Share, unless: isTimes,
			so: "What is never negative cannot become less by more than all of it."},
		{rule: "whole", left: "goodput", sign: "≤", right: "throughput", same: true, about: 0.01, in: row.BitRate,
			unless: saying(saysLess), so: whole},
		{rule: "total", left: "all_ways", sign: "=", right: "upward + downward", same: true,
			unless: isBothAtOnce, soft: maybeAlone},
		{rule: "total", left: "all_ways", sign: "=", right: "read + written", same: true,
			soft: maybeApart},
		{rule: "total", left: "idle", sign: "=", right: "all" + used, or: "cpus" + used + " or all" + used +
			" − nice or all" + used + " − guest or all" + used + " − nice − guest or all" + used +
			" − nice − guest − gnice", same: true, unless: severalCPUs},
		{rule: "whole", left: "part", sign: "≤", right: "all", in: row.Share, so: whole},
		{rule: "whole", left: "lost_share", sign: "≤", right: "all", in: row.Share, so: whole},
	}
}

// spreads returns the laws of statistics, and of one quantity in two units.
func spreads() []law {
	return []law{
		{rule: "same-quantity", left: "stated_bits", sign: "≤", right: "moved_bytes × bits ÷ tcp", in: row.BitRate,
			once: true,
			so:   "Bytes and bits are not the same quantity, even with frames of MTU 1500; smaller ones add more."},
		{rule: "same-quantity", left: "moved_bits", sign: "≥", right: "moved_bytes × bits", in: row.BitRate,
			once: true, so: "Bytes and bits are not the same quantity."},
		{rule: "mean", left: "mean", sign: "≥", right: "min", same: true},
		{rule: "mean", left: "mean", sign: "≤", right: "max", same: true},
		{rule: "mean", left: "mean", sign: "≥", right: "percentile × above", each: "percentile", same: true},
		{rule: "mean", left: "mean", sign: "≤", right: "percentile × below + max × above", each: "percentile",
			same: true},
		{rule: "deviation", left: "deviation", sign: "≤", right: "( max − min ) ÷ root2", same: true,
			so: "No samples within this range deviate so much."},
		{rule: "deviation", left: "jitter", sign: "≤", right: "delay_max − delay_min", soft: maybeApart,
			so: "No two samples within this range differ so much."},
		{rule: "in-flight", left: "latency_mean", sign: "≤", right: "connections ÷ request_rate", about: 0.25,
			in: row.Duration, unless: isOpenLoop, so: "So many requests a second cannot each take this long on " +
				"average (Little's law), unless a connection carries several at once, or the time before a request " +
				"could be sent is counted."},
	}
}

// limits returns the laws of time, of samples and of links.
func limits() []law {
	return []law{
		{rule: "too-long", left: "run", sign: "≤", right: "year", in: row.Duration,
			so: "The unit or the figure is wrong."},
		{rule: "too-long", left: "loops × interval", sign: "≤", right: "year", in: row.Duration,
			so: "Whatever was measured ended earlier: how long it was and how many samples it has is not known."},
		{rule: "longer-than-run", left: "latency", sign: "≤", right: "run", in: row.Duration,
			so: "A unit or a figure is wrong, or the measurement went on after its end."},
		{rule: "too-few-samples", left: "samples × above", sign: "≥", right: "1", each: "percentile_time", so: few},
		{rule: "too-few-samples", left: "probes × above", sign: "≥", right: "1", each: "percentile_time", so: few},
		{rule: "too-few-samples", left: "request_rate × run × above", sign: "≥", right: "1",
			each: "percentile_time", so: few},
		{rule: "over-line", left: "moved", sign: "≤", right: "link", in: row.BitRate, unless: offLink, so: beyond},
		{rule: "over-line", left: "packet_rate × ( packet + gap )", sign: "≤", right: "link", in: row.BitRate,
			unless: offLink, so: beyond},
		{rule: "over-line", left: "packet_rate × ( frame + gap )", sign: "≤", right: "link", in: row.BitRate,
			unless: offLink, so: beyond},
		{rule: "over-line", left: "moved_both", sign: "≤", right: "link", in: row.BitRate, unless: offLink,
			so: beyond},
		{rule: "over-line", left: "moved", sign: "≤", right: "link_use × link", in: row.BitRate, unless: offLink,
			so: "The use of the link, its rate or what it carried is wrong, or they are of different times."},
		{rule: "over-line", left: "packet_rate", sign: "≤", right: "link ÷ bits ÷ ( smallest + gap )",
			unless: isSized, so: beyond},
		{rule: "threads", left: "threads ÷ cores", sign: "whole", so: "Cores of one kind have the same number of " +
			"threads each: unless the CPU has several kinds of cores, one of the two is a misprint."},
	}
}

// machines returns the laws of what CPUs, memory and cards have and do.
func machines() []law {
	const none = "No CPU does more than its time and clock allow: a figure is wrong, or it is of other CPUs."
	return []law{
		{rule: "whole", left: "packet_cycles × packet_rate", sign: "≤", right: "clock × used", about: 0.02,
			unless: saying(saysTurbo), in: row.Frequency, soft: suspect("No CPU has more cycles than its clock " +
				"gives, unless it ran faster than printed, or it is the clock of other CPUs.")},
		{rule: "whole", left: "packet_time × packet_rate", sign: "≤", right: "used", about: 0.02, in: row.Count,
			soft: suspect(none)},
		{rule: "product", left: "budget", sign: "=", right: "1 ÷ packet_rate", about: 0.01,
			or: "used ÷ packet_rate", soft: maybeApart},
		{rule: "product", left: "ipc", sign: "=", right: "instructions ÷ cycles", about: 0.01},
		{rule: "over-line", left: "memory", sign: "≤", right: "transfers × bus × channels", in: row.BitRate,
			or: "transfers × bus × channels × sockets", so: "A memory channel moves 8 bytes at a time."},
		{rule: "over-line", left: "moved", sign: "≤", right: "pcie × wide × lanes", in: row.BitRate,
			unless: isNoSlot, so: "The slot carries less: a figure is wrong, or it was several slots."},
		{rule: "derived", left: "logical", sign: "=", right: "sockets × socket_cores × core_threads"},
		{rule: "derived", left: "cpu_limit", sign: "=", right: "quota ÷ quota_period"},
		{rule: "product", left: "reserved", sign: "=", right: "pages × page"},
		{rule: "whole", left: "mss", sign: "≤", right: "mtu − 40", in: row.Size,
			so: "A segment has 40 bytes of headers at least."},
		{rule: "whole", left: "local + remote", sign: "≤", right: "all", in: row.Share, soft: maybeApart},
		{rule: "whole", left: "read_part + write_part", sign: "≤", right: "all", in: row.Share, soft: maybeApart},
	}
}

// others returns the laws of failures and money, of windows and of statistics.
func others() []law {
	return []law{
		{rule: "product", left: "available", sign: "=", right: "mtbf ÷ ( mtbf + mttr )",
			or: "( mtbf − mttr ) ÷ mtbf", soft: maybeApart},
		{rule: "product", left: "yearly_fails", sign: "=", right: "year ÷ mtbf", about: asked,
			or: "year ÷ ( mtbf + year ÷ 2 )", soft: maybeApart}, // counts only machines that still run
		{rule: "product", left: "mtbf", sign: "=", right: "observed ÷ failures", about: asked,
			or: "( observed − downtime ) ÷ failures or devices × observed ÷ failures", soft: maybeApart},
		{rule: "product", left: "latency_mean", sign: "=", right: "1 ÷ round_rate", about: asked,
			or: "streams ÷ round_rate or connections ÷ round_rate or workers ÷ round_rate", unless: isNotInTurns,
			soft: suspect("Where one follows the other, the time of each is 1 ÷ their rate: a figure is wrong, or " +
				"several were under way at once.")},
		{rule: "product", left: "bdp", sign: "=", right: "moved × way_back", about: asked,
			or: "link × way_back", soft: maybeApart},
		{rule: "product", left: "bdp", sign: "=", right: "link × way_back", about: asked,
			or: "moved × way_back", soft: maybeApart},
		{rule: "product", left: "concurrent", sign: "=", right: "begun × hold", about: 0.05, soft: maybeApart},
		{rule: "product", left: "yearly", sign: "=", right: "monthly × 12", about: 0.01,
			soft: suspect("One of the two is wrong, or a year is cheaper than its months.")},
		{rule: "over-window", left: "moved", sign: "≤", right: "window ÷ way_back", in: row.BitRate, about: asked,
			or: "streams × window ÷ way_back or connections × window ÷ way_back or workers × window ÷ way_back",
			so: "A connection sends a window each round trip at most: it had a larger one, or there were several."},
		{rule: "deviation", left: "stderr", sign: "=", right: "deviation ÷ √ ( samples )", about: asked,
			same: true, free: "samples",
			or: "deviation ÷ √ ( runs ) or deviation ÷ √ ( runs − 1 )", soft: maybeApart},
		{rule: "derived", left: "cv", sign: "=", right: "deviation ÷ mean", same: true},
	}
}

// twice returns the laws of things that are said twice, and of the order of figures.
func twice() []law {
	const many = "More arrived than was offered: a figure is wrong, or they are of different places or times."
	return []law{
		{rule: "whole", left: "pue", sign: "≥", right: "1", in: row.Count, so: whole},
		{rule: "comparison", left: "speedup", each: "speedup", sign: "=", right: "1 ÷ ( 1 − reduced )", same: true,
			stat: true,
			or:   "1 + gain", unless: isNotTwice},
		{rule: "comparison", left: "speedup", each: "speedup", sign: "=", right: "1 + gain", same: true, stat: true,
			or: "1 ÷ ( 1 − reduced )", unless: isNotTwice},
		{rule: "order", left: "first_byte", sign: "≤", right: "fetch", stat: true, in: row.Duration,
			soft: maybeApart},
		{rule: "order", left: "owd", sign: "≤", right: "round_trip", stat: true, in: row.Duration,
			soft: maybeApart},
		{rule: "order", left: "ndr", sign: "≤", right: "pdr", same: true, in: row.Rate,
			so: "What loses nothing loses no more than some: the partial drop rate is the higher one."},
		{rule: "balance", left: "moved", sign: "≤", right: "offered_load", in: row.BitRate, about: 0.01,
			unless: isMore, soft: suspect(many)},
		{rule: "balance", left: "carried_rate", sign: "≤", right: "offered_rate", same: true, about: 0.01,
			in:     row.Rate,
			unless: isMore, soft: suspect(many)},
		{rule: "balance", left: "late_share", sign: "=", right: "late ÷ samples", soft: maybeApart},
		{rule: "total", left: "tco", sign: "=", right: "capex + opex", soft: maybeApart},
	}
}
