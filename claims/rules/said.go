package rules

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strings"

	"isolane.dev/isolane/claims/cells"
	"isolane.dev/isolane/claims/row"
)

// What tables say in words. The patterns match the prose of a row, in lower case with single spaces.
var (
	saysOneHost = regexp.MustCompile(`\b(?:veth|loopback|localhost|memif|intra (host|node|vm)|inter vm|` +
		`(same|one|single) (host|node|machine|server)|` +
		`not over the (nic|link|wire|network)|` +
		`(vm|guest|pod|container) to (vm|guest|pod|container))\b`)
	saysHosts = regexp.MustCompile(`\b(?:across|inter (host|node)|(node|host) to (node|host)|` +
		`(two|different|other|remote) (hosts?|nodes?|machines?|servers?)|` +
		`between (hosts|nodes|machines|servers))\b`)
	saysBothWays = regexp.MustCompile(`\b(?:both (directions|ways)|bidir(ectional)?|duplex|two way|` +
		`(rx|up|ul|download) ?(\+|and|plus) ?(tx|down|dl|upload)|` +
		`(tx|down|dl|upload) ?(\+|and|plus) ?(rx|up|ul|download))\b`)
	saysBond = regexp.MustCompile(`\b(?:bond\d?|bonded|bonding|lacp|m?lag|802\.3ad|ecmp|` +
		`link aggregation|multipath|mptcp)\b`)
	saysLess = regexp.MustCompile(`\b(?:gzip|brotli|deflate|zstd|lz4|compress(ed|ion)|` +
		`cached?|304|not modified|dedup\w*)\b`)
	saysOutside = regexp.MustCompile(`\b(?:vxlan|geneve|gre|ipsec|esp|wireguard|gtp|` +
		`tunnels?|mpls|srv6|qinq|imix|encap\w*)\b`)
	saysMany = regexp.MustCompile(`\b(?:(\d+|two|three|several|many|all) (receivers|subscribers|senders)|` +
		`receivers|subscribers|multicast|broadcast|flood(s|ed|ing)?|mirror(ed|ing)?)\b`)
	saysOpenLoop = regexp.MustCompile(`\b(?:open loop|wrk2|coordinated omission|` +
		`(planned|intended|scheduled) start|pipelin\w+|http2|http 2|http3|h2load|multiplex\w*|target|offered)\b`)
	saysNotMean = regexp.MustCompile(`\b(?:peak|ramp|warm ?up)\b`)
	saysMeanOf  = regexp.MustCompile(`\b(?:mean|average|averaged|avg) (?:of|over|across) (?:all |the )?` +
		`(?:\d+ )?(?:runs|nodes|hosts|instances|pods|trials|repetitions|servers|clients|threads|intervals)\b`)
	saysMemory  = regexp.MustCompile(`\b(?:memory|memcpy|copy|disks?|nvme|ssd|cache|pcie|dma|storage)\b`)
	saysSeveral = regexp.MustCompile(`\b(?:nodes|hosts|servers|machines|clusters?|vms|pods|guests|each|all)\b`)
	saysEcho    = regexp.MustCompile(`\b(?:ping|echo|icmp|sockperf|ping pong)\b`)
	saysOverlap = regexp.MustCompile(`\b(?:cumulative|cdf|inclusive|children|overlap\w*|at (least|most)|below|` +
		`above|under|over|within|up to|multiple|per cpu|each|busy|util\w*|usage)\b`)
	saysWeak    = regexp.MustCompile(`\bweak\b`)
	saysTurbo   = regexp.MustCompile(`\b(?:turbo|boost)\b`)
	saysInTurns = regexp.MustCompile(`\b(?:(tcp|udp|sctp) ?c?rr|request response|ping pong|` +
		`(one|1|single) (request|transaction|message|outstanding)( at a time)?)\b`)
	saysPoints = regexp.MustCompile(`\b(?:pp|percent(age)? points?)\b`)
	saysAlone  = regexp.MustCompile(`\b(?:alone|separate(ly)?|one at a time|one by one|each by itself)\b`)
	saysNone   = regexp.MustCompile(`\b(?:(no|without) \w+|\w+ (off|no|none|disabled))\b`)
)

// links is how many links a source has, by its setup, its links and its texts, and whether they are one bond.
type links struct {
	number float64
	bond   bool
}

// table is what the rules check.
type table struct {
	*cells.Table
	links map[string]links  // by source
	known map[*row.Row]bool // result of paired
}

func tableOf(rows []*row.Row) *table {
	t := &table{Table: cells.Of(rows), links: map[string]links{}}
	for _, c := range row.Grouped[cells.Cell](rows, bySource) {
		t.links[c[0].Source] = t.linksOf(c)
	}
	return t
}

func (t *table) linksOf(rows []*row.Row) links {
	var l links
	for _, w := range rows {
		if t.Roles["links"].Fits(w) {
			l.number = max(l.number, w.Value.Mid)
		}
		if w.IsSetup() || w.Unit.Dim == row.Text || t.Roles["link"].Fits(w) {
			l.number = max(l.number, w.Links())
			l.bond = l.bond || saysBond.MatchString(w.Prose)
		}
	}
	return l
}

// carrier returns the row of an instance that a link carries.
func (i instance) carrier() *row.Row {
	for _, name := range []string{"moved", "moved_both", "packet_rate", "round_trip", "fetch"} {
		if w := i.rows[name]; w != nil {
			return w
		}
	}
	return nil
}

// times returns by how many times a figure may exceed a link's rate: several links, and both directions.
func (i instance) times() float64 {
	w := i.carrier()
	if w == nil {
		return 1
	}
	n := max(1, i.t.links[w.Source].number, w.Links())
	if saysBothWays.MatchString(w.Prose) {
		n *= 2
	}
	return n
}

// offLink reports whether no link carries a figure's traffic, or a bond of unknown size does.
func offLink(i instance) bool {
	w := i.carrier()
	bond := i.t.links[w.Source].bond || saysBond.MatchString(w.Prose)
	number := max(i.t.links[w.Source].number, w.Links())
	return saysOneHost.MatchString(w.Prose) && !saysHosts.MatchString(w.Prose) || bond && number < 2
}

// says reports whether the figures of an instance, or the texts beside them, say something: not "cache=off".
func (i instance) says(what *regexp.Regexp) bool {
	says := func(w *row.Row) bool { return what.MatchString(saysNone.ReplaceAllString(w.Prose, "")) }
	for _, w := range i.rows {
		texts := func(o *row.Row) bool { return o.Unit.Dim == row.Text && says(o) }
		if says(w) || slices.ContainsFunc(i.t.Of[w], texts) {
			return true
		}
	}
	return false
}

// saying returns a law's unless: the table says what.
func saying(what *regexp.Regexp) func(instance) bool {
	return func(i instance) bool { return i.says(what) }
}

// suspect returns a law's soft: the conclusion so is not certain.
func suspect(so string) func(instance) string { return func(instance) string { return so } }

// isNotInTurns is true unless the table says that each request waits for the one before.
func isNotInTurns(i instance) bool { return !i.says(saysInTurns) || isOpenLoop(i) }

// isNotTwice is for a factor and a percentage that differ in meaning, or whose figures the table also has.
func isNotTwice(i instance) bool {
	percent := cmp.Or(i.rows["reduced"], i.rows["gain"])
	return i.rows["speedup"].Unit.Factor != 1 || percent.Unit.Factor == 1 || percent.Unit.Points ||
		i.t.paired()[i.rows["speedup"]]
}

// paired returns the comparisons whose figures the table has.
func (t *table) paired() map[*row.Row]bool {
	if t.known == nil {
		t.known = map[*row.Row]bool{}
		for _, c := range t.comparisons() {
			pairs, _ := t.pairs(c)
			t.known[c.Row] = len(pairs) > 0
		}
	}
	return t.known
}

// isNoSlot is for traffic that does not pass one slot, or passes it in both directions at once.
func isNoSlot(i instance) bool { return offLink(i) || i.times() > 1 || i.says(saysBothWays) }

// isMore is for what may become more on its way, and for what another law checks.
func isMore(i instance) bool {
	c := i.t.Of[i.rows[i.names[len(i.names)-1]]]
	lost := slices.ContainsFunc(c, func(w *row.Row) bool {
		return i.t.Roles["lost_share"].Fits(w) || i.t.Roles["lost_rate"].Fits(w)
	})
	return lost || i.says(saysMany) || i.says(saysOutside) || i.says(saysLess)
}

// isLess is for replies that are compressed or come from a cache, and so have fewer bytes than their objects.
func isLess(i instance) bool {
	return i.says(saysLess) && i.left.Value(i.get).Below(i.right.Value(i.get))
}

// isCounted is for a loss about which the number of received packets says more.
func isCounted(i instance) bool {
	return i.says(saysMany) || slices.ContainsFunc(i.t.Of[i.rows["lost"]], i.t.Roles["received"].Fits)
}

// isSized is for packets whose size another law checks.
func isSized(i instance) bool {
	c := i.t.Of[i.rows["packet_rate"]]
	return offLink(i) || i.t.Find(c, "frame", nil) != nil || i.t.Find(c, "packet", nil) != nil
}

func isOpenLoop(i instance) bool {
	return i.says(saysOpenLoop) || slices.ContainsFunc(i.t.Of[i.rows["latency_mean"]], func(w *row.Row) bool {
		return w.Unit.Dim == row.Rate && w.Has("target", "offered", "planned", "intended")
	})
}

// isBothAtOnce is for a total of both directions at once that is not much more than each alone together.
func isBothAtOnce(i instance) bool {
	const about = 1.05
	w := i.rows["all_ways"]
	words := strings.Join(slices.Concat(w.Words, row.WordsOf(w.Quoted)), " ")
	return (saysBothWays.MatchString(words) || strings.Contains(words, "at once")) &&
		i.t.Base(w).Below(i.right.Value(i.get).Scaled(about))
}

// maybeOthers says why what was sent and what was received may not be the same traffic.
func maybeOthers(i instance) string {
	for _, p := range [][2]string{{"sent", "received"}, {"sent_rate", "received_rate"},
		{"tx_count", "rx_count"}} {
		switch sent, received := i.rows[p[0]], i.rows[p[1]]; {
		case sent == nil || received == nil:
		case i.t.Base(sent).Below(i.t.Base(received)):
			return "More was received than sent: copies or several receivers, or the two were counted at different " +
				"places or times. Nothing can be said of what was lost."
		case sent.Has("tx") || received.Has("rx"):
			return "One of the figures is wrong, or what was sent and received is traffic of two directions."
		}
	}
	return ""
}

// severalCPUs is for shares of the time of several CPUs: one share is more than a CPU has, or all together
// are two CPUs or more.
func severalCPUs(i instance) bool {
	sum, most := 0., 0.
	for _, w := range i.rows {
		if v := i.t.Base(w).Mid; w.Unit.Dim == row.Share {
			sum, most = sum+v, max(most, v)
		}
	}
	return most > 1 || sum > 1.5 && math.Abs(sum-math.Round(sum)) < 0.01
}

// maybeApart says why figures of one configuration may not be of the same traffic or time.
func maybeApart(instance) string {
	return "One of the figures is wrong, or they are of different traffic or times."
}

// maybeAlone says why a total may not be that of its parts.
func maybeAlone(i instance) string {
	if saysBothWays.MatchString(strings.Join(i.rows["all_ways"].Words, " ")) {
		return "Unless each direction was measured alone, one of the figures is wrong."
	}
	return ""
}

// isInTotal is for shares of a CPU's time that another law adds up.
func isInTotal(i instance) bool {
	return severalCPUs(i) || len(i.rows) == 8 || len(i.rows) == 7 && i.rows["nice"] == nil
}

// ofRequests is for hits about which the number of requests says more.
func ofRequests(i instance) bool {
	return slices.ContainsFunc(i.t.Of[i.rows["hits"]], i.t.Roles["requests"].Fits)
}

// isTimes is for a reduction given as a factor: 4x less.
func isTimes(i instance) bool { return i.rows["reduced"].Unit.Factor == 1 }

// isNoHost is for CPUs that the table does not say to be all CPUs of a host.
func isNoHost(i instance) bool {
	w := i.rows["host_cpus"]
	is := func(names ...string) bool {
		return slices.ContainsFunc(w.General, func(s string) bool { return slices.Contains(names, s) })
	}
	for _, o := range i.rows {
		if saysSeveral.MatchString(o.Prose) || saysSeveral.MatchString(i.first.Prose) {
			return true
		}
	}
	return is("vm", "guest", "container", "pod", "vnf", "instance", "client", "generator") ||
		!w.Has("logical", "hardware", "hyperthreads", "online", "host", "server") &&
			!is("host", "server", "node", "dut", "machine", "hypervisor")
}

// isOneWay is for round trips that the table does not say to bring back what they took.
func isOneWay(i instance) bool {
	return offLink(i) || !i.says(saysEcho)
}

// isElsewhere is for a length that may not be that of the path of a latency.
func isElsewhere(i instance) bool {
	way := cmp.Or(i.rows["distance"], i.rows["fibre"])
	return !way.IsOf(cmp.Or(i.rows["one_way"], i.rows["round_trip"]))
}

// isNotFetched is for objects that may not have crossed the link unchanged.
func isNotFetched(i instance) bool {
	return offLink(i) || i.says(saysLess) || i.rows["object"].Stat.Kind != ""
}
