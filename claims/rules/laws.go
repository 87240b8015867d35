package rules

import (
	"maps"
	"slices"

	"isolane.dev/isolane/claims/formula"
	"isolane.dev/isolane/claims/role"
	"isolane.dev/isolane/claims/row"
)

// law is what holds between figures of one configuration. Where the left side is one figure, the right side
// is another way to compute it, or its limit. Equal sides need two figures of the configuration itself.
type law struct {
	rule       string
	left       formula.Formula
	sign       string // = ≤ ≥, or "whole" where the left side is a whole number and not 0
	right      formula.Formula
	each       string          // the name that takes each figure of a configuration; else each has one
	once       bool            // the left side has one value in a configuration
	same       bool            // the metrics are the same but for the words of their roles
	plus       string          // names that add to the left side where the configuration has them
	more, less formula.Formula // that the right side may be, besides the printed digits
	or         formula.Formula // other right sides, where their figures are there: then any must hold
	about      float64         // share of the right side that it may be off
	in         row.Dimension   // of the sides, to print them
	so         string
	unless     func(i instance) bool   // the table says what takes the law's ground away
	soft       func(i instance) string // why a finding is only suspicious, "" where it is not
}

// Conclusions of several laws.
const (
	wrong  = "One of the figures is wrong, or means something else."
	whole  = "A part is never more than the whole."
	beyond = "The unit or a figure is wrong, or it was several links, or none of those that the table names."
	few    = "Less than one sample is above it: this is the maximum, or computed between two samples."
)

// laws are in base units: seconds, bytes, and per second of them.
func laws() []law { return slices.Concat(products(), sums(), spreads(), limits(), hosts(), ways()) }

// products are the laws of rates, sizes and times.
func products() []law {
	const asked = 0.02 // a run is seldom as long as asked for
	all := []law{
		{rule: "product", left: "moved_bytes", sign: "=", right: "request_rate × object",
			more: "request_rate × head", so: wrong, unless: isLess},
		{rule: "product", left: "moved_bits", sign: "=", right: "request_rate × object × bits",
			more: "request_rate × head + request_rate × object × framing", so: wrong, unless: isLess},
		{rule: "product", left: "moved", sign: "=", right: "packet_rate × packet", more: "packet_rate × around",
			less: "packet_rate × around", so: wrong},
		{rule: "product", left: "moved", sign: "=", right: "packet_rate × frame", more: "packet_rate × wire",
			less: "packet_rate × around", so: wrong, unless: saying(saysOutside)},
		{rule: "product", left: "stored", sign: "=", right: "iops × block", so: wrong},
		{rule: "product", left: "requests", sign: "=", right: "request_rate × run", about: asked, so: wrong,
			unless: saying(saysNotMean)},
		{rule: "product", left: "packets", sign: "=", right: "packet_rate × run", about: asked, so: wrong,
			unless: saying(saysNotMean)},
		{rule: "product", left: "volume", sign: "=", right: "moved × run", about: asked, so: wrong,
			unless: saying(saysNotMean)},
		{rule: "product", left: "run", sign: "=", right: "loops × interval", about: asked,
			or: "loops × interval ÷ workers", so: wrong},
		{rule: "product", left: "energy", sign: "=", right: "power × run", about: asked, soft: maybeApart,
			so: wrong, unless: saying(saysNotMean)},
		{rule: "product", left: "per_power", sign: "=", right: "moved ÷ power", about: asked, soft: maybeApart,
			so: wrong},
		{rule: "product", left: "downtime", sign: "=", right: "( all − available ) × observed", about: asked,
			so: wrong},
	}
	for _, name := range slices.Sorted(maps.Keys(role.Events())) {
		all = append(all, law{rule: "product", left: formula.Formula(name), sign: "=", about: asked, same: true,
			right: formula.Formula(name + "_rate × run"), so: wrong, unless: saying(saysNotMean)})
	}
	return all
}

// sums are the laws of parts and wholes.
func sums() []law {
	// With nice and guests where a tool shows them: their time is in that of the user (top), or not (mpstat).
	const used = " − user − system − iowait − irq − softirq − steal"
	return []law{
		{rule: "balance", left: "lost", sign: "=", right: "sent − received", same: true,
			or: "sent − received + duplicates", unless: saying(saysMany), soft: maybeOthers, so: wrong},
		{rule: "balance", left: "lost_share", sign: "=", right: "( sent − received ) ÷ sent", same: true,
			or: "( sent − received + duplicates ) ÷ sent", unless: saying(saysMany), soft: maybeOthers, so: wrong},
		{rule: "balance", left: "lost_share", sign: "=", right: "lost ÷ sent", same: true,
			or: "lost ÷ ( sent + lost )", unless: isCounted, so: wrong},
		{rule: "balance", left: "lost_share", sign: "=", right: "( sent_rate − received_rate ) ÷ sent_rate",
			or: "( received_rate − sent_rate ) ÷ received_rate", unless: saying(saysMany), soft: maybeOthers,
			so: wrong},
		{rule: "balance", left: "lost_share", sign: "=", right: "( tx_count − rx_count ) ÷ tx_count",
			or: "( rx_count − tx_count ) ÷ rx_count", unless: saying(saysMany), soft: maybeOthers, so: wrong},
		{rule: "balance", left: "lost_rate", sign: "=", right: "sent_rate − received_rate",
			or: "received_rate − sent_rate", unless: saying(saysMany), soft: maybeOthers, so: wrong},
		{rule: "balance", left: "failed_share", sign: "=", right: "failed ÷ requests",
			or: "failed ÷ ( requests + failed )", so: wrong},
		{rule: "balance", left: "resent_share", sign: "=", right: "resent ÷ sent",
			or: "resent ÷ ( sent + resent )", so: wrong},
		{rule: "balance", left: "hit_rate", sign: "=", right: "hits ÷ requests",
			or: "hits ÷ ( hits + misses )", so: wrong},
		{rule: "balance", left: "hit_rate", sign: "=", right: "hits ÷ ( hits + misses )", same: true,
			unless: ofRequests, so: wrong},
		{rule: "balance", left: "miss_rate", sign: "=", right: "misses ÷ ( hits + misses )", same: true,
			unless: ofRequests, so: wrong},
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
			unless: isBothAtOnce, soft: maybeAlone, so: wrong},
		{rule: "total", left: "all_ways", sign: "=", right: "read + written", same: true, so: wrong,
			soft: maybeApart},
		{rule: "total", left: "idle", sign: "=", right: "all" + used, or: "cpus" + used + " or all" + used +
			" − nice or all" + used + " − guest or all" + used + " − nice − guest or all" + used +
			" − nice − guest − gnice", same: true, unless: severalCPUs, so: wrong},
		{rule: "whole", left: "part", sign: "≤", right: "all", in: row.Share, so: whole},
		{rule: "whole", left: "lost_share", sign: "≤", right: "all", in: row.Share, so: whole},
	}
}

// spreads are the laws of statistics, and of one quantity in two units.
func spreads() []law {
	return []law{
		{rule: "same-quantity", left: "stated_bits", sign: "≤", right: "moved_bytes × bits ÷ tcp", in: row.BitRate,
			once: true,
			so:   "Bytes and bits are not the same quantity, even with frames of MTU 1500; smaller ones add more."},
		{rule: "same-quantity", left: "moved_bits", sign: "≥", right: "moved_bytes × bits", in: row.BitRate,
			once: true, so: "Bytes and bits are not the same quantity."},
		{rule: "mean", left: "mean", sign: "≥", right: "min", same: true, so: wrong},
		{rule: "mean", left: "mean", sign: "≤", right: "max", same: true, so: wrong},
		{rule: "mean", left: "mean", sign: "≥", right: "percentile × above", each: "percentile", same: true,
			so: wrong},
		{rule: "mean", left: "mean", sign: "≤", right: "percentile × below + max × above", each: "percentile",
			same: true, so: wrong},
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

// limits are the laws of time, of samples and of links.
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
