package rules

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/claims/row"
)

// What tables say in words: of the prose of a row, which is in small letters with single spaces.
var (
	saysOneHost = regexp.MustCompile(`\b(?:veth|loopback|localhost|memif|intra (host|node|vm)|inter vm|` +
		`(same|one|single) (host|node|machine|server)|` +
		`not over the (nic|link|wire|network)|` +
		`(vm|guest|pod|container) to (vm|guest|pod|container))\b`)
	saysHosts = regexp.MustCompile(`\b(?:across|inter (host|node)|(node|host) to (node|host)|` +
		`(two|different|other|remote) (hosts?|nodes?|machines?|servers?)|` +
		`between (hosts|nodes|machines|servers))\b`)
	saysBothWays = regexp.MustCompile(`\b(?:both (directions|ways)|bidir(ectional)?|duplex|two way|` +
		`(rx|up|download) ?(\+|and|plus) ?(tx|down|upload)|` +
		`(tx|down|upload) ?(\+|and|plus) ?(rx|up|download))\b`)
	saysBond = regexp.MustCompile(`\b(?:bond\d?|bonded|bonding|lacp|m?lag|802\.3ad|ecmp|` +
		`link aggregation|multipath|mptcp)\b`)
	saysLinks = regexp.MustCompile(`\b(?:(\d{1,3}|two|both|three|four|six|eight|dual|quad) ?` +
		`(?:[x×] ?(?:\S+ ){0,4}\d+ ?g(?:b|be|bps|bit)?|(?:links?|ports?|nics?|interfaces|uplinks|homed)))\b`)
	saysLinksAre = regexp.MustCompile(`\b(?:(?:links|ports|nics|interfaces|uplinks) (\d{1,3}))\b`)
	saysLess     = regexp.MustCompile(`\b(?:gzip|brotli|deflate|zstd|lz4|compress(ed|ion)|` +
		`cached?|304|not modified|dedup\w*)\b`)
	saysOutside = regexp.MustCompile(`\b(?:vxlan|geneve|gre|ipsec|esp|wireguard|gtp|` +
		`tunnels?|mpls|srv6|qinq|imix|encap\w*)\b`)
	saysMany = regexp.MustCompile(`\b(?:(\d+|two|three|several|many|all) (receivers|subscribers|senders)|` +
		`receivers|subscribers|multicast|broadcast|flood(s|ed|ing)?|mirror(ed|ing)?)\b`)
	saysOpenLoop = regexp.MustCompile(`\b(?:open loop|wrk2|coordinated omission|` +
		`(planned|intended|scheduled) start|pipelin\w+|http2|http 2|http3|h2load|multiplex\w*|target|offered)\b`)
	saysNotMean = regexp.MustCompile(`\b(?:peak|ramp|warm ?up)\b`)
	saysPoints  = regexp.MustCompile(`\b(?:pp|percent(age)? points?)\b`)
	saysAlone   = regexp.MustCompile(`\b(?:alone|separate(ly)?|one at a time|one by one|each by itself)\b`)
	saysNone    = regexp.MustCompile(`\b(?:(no|without) \w+|\w+ (off|no|none|disabled))\b`)
)

// linksIn is how many links are named, 0 where none are.
func linksIn(prose string) float64 {
	most := 0.
	for _, m := range slices.Concat(saysLinks.FindAllStringSubmatch(prose, -1),
		saysLinksAre.FindAllStringSubmatch(prose, -1)) {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			n = map[string]float64{"two": 2, "both": 2, "dual": 2, "three": 3, "four": 4, "quad": 4, "six": 6,
				"eight": 8}[m[1]]
		}
		most = max(most, n)
	}
	return most
}

// links are how many a source has, as its setup, its links and its texts say, and whether they are one bond.
type links struct {
	number float64
	bond   bool
}

func (t *table) linksOf(rows []*row.Row) links {
	var l links
	for _, w := range rows {
		if t.roles["links"].fits(w) {
			l.number = max(l.number, w.Value.Mid)
		}
		if w.IsSetup() || w.Unit.Dim == row.Text || t.roles["link"].fits(w) {
			l.number = max(l.number, linksIn(w.Prose))
			l.bond = l.bond || saysBond.MatchString(w.Prose)
		}
	}
	return l
}

// carrier is the row of an instance that a link carries.
func (i instance) carrier() *row.Row {
	for _, name := range []string{"moved", "moved_both", "packet_rate"} {
		if w := i.rows[name]; w != nil {
			return w
		}
	}
	return nil
}

// times is how many times a link's rate a figure may be: several links, and both directions.
func (i instance) times() float64 {
	w := i.carrier()
	if w == nil {
		return 1
	}
	n := max(1, i.t.links[w.Source].number, linksIn(w.Prose))
	if saysBothWays.MatchString(w.Prose) {
		n *= 2
	}
	return n
}

// offLink says whether a figure is of traffic that no link carries, or one of nobody says how many.
func offLink(i instance) bool {
	w := i.carrier()
	bond := i.t.links[w.Source].bond || saysBond.MatchString(w.Prose)
	number := max(i.t.links[w.Source].number, linksIn(w.Prose))
	return saysOneHost.MatchString(w.Prose) && !saysHosts.MatchString(w.Prose) || bond && number < 2
}

// says is for what the figures of an instance, or the texts of their configuration, say: not "cache=off".
func (i instance) says(what *regexp.Regexp) bool {
	says := func(w *row.Row) bool { return what.MatchString(saysNone.ReplaceAllString(w.Prose, "")) }
	for _, w := range i.rows {
		texts := func(o *row.Row) bool { return o.Unit.Dim == row.Text && says(o) }
		if says(w) || slices.ContainsFunc(i.t.of[w], texts) {
			return true
		}
	}
	return false
}

// saying is a law's unless: what a table says.
func saying(what *regexp.Regexp) func(instance) bool {
	return func(i instance) bool { return i.says(what) }
}

// isLess is for replies that are compressed or come out of a cache: fewer bytes than objects.
func isLess(i instance) bool {
	return i.says(saysLess) && i.left.value(i.get).Below(i.right.value(i.get))
}

// isCounted is for a loss of which what was received says more.
func isCounted(i instance) bool {
	return i.says(saysMany) || slices.ContainsFunc(i.t.of[i.rows["lost"]], i.t.roles["received"].fits)
}

// isSized is for packets whose size another law looks at.
func isSized(i instance) bool {
	c := i.t.of[i.rows["packet_rate"]]
	return offLink(i) || i.t.find(c, "frame", nil) != nil || i.t.find(c, "packet", nil) != nil
}

func isOpenLoop(i instance) bool {
	return i.says(saysOpenLoop) || slices.ContainsFunc(i.t.of[i.rows["latency_mean"]], func(w *row.Row) bool {
		return w.Unit.Dim == row.Rate && w.Has("target", "offered", "planned", "intended")
	})
}

// isBothAtOnce is for a total of both directions at once beside each alone.
func isBothAtOnce(i instance) bool {
	w := i.rows["all_ways"]
	words := strings.Join(slices.Concat(w.Words, row.WordsOf(w.Quoted)), " ")
	return saysBothWays.MatchString(words) || strings.Contains(words, "at once")
}

// maybeOthers says why what was sent and what was received may not be the same traffic.
func maybeOthers(i instance) string {
	for _, p := range [][2]string{{"sent", "received"}, {"sent_rate", "received_rate"}} {
		switch sent, received := i.rows[p[0]], i.rows[p[1]]; {
		case sent == nil || received == nil:
		case i.t.base(sent).Below(i.t.base(received)):
			return "More was received than sent: copies or several receivers, or the two were counted at different " +
				"places or times. Nothing can be said of what was lost."
		case sent.Has("tx") || received.Has("rx"):
			return "One of the figures is wrong, or what was sent and received is traffic of two directions."
		}
	}
	return ""
}

// severalCPUs is for shares of the time of several CPUs: one is more than a CPU has, or all of them are two
// or more.
func severalCPUs(i instance) bool {
	sum, most := 0., 0.
	for _, w := range i.rows {
		if v := i.t.base(w).Mid; w.Unit.Dim == row.Share {
			sum, most = sum+v, max(most, v)
		}
	}
	return most > 1 || sum > 1.5 && math.Abs(sum-math.Round(sum)) < 0.01
}
