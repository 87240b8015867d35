package place

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/plan"
)

// Kind names a verdict without revealing what else is on a host.
type Kind string

// The kinds, in the order in which Why lists them.
const (
	Chosen   Kind = "chosen"
	Refused  Kind = "refused"        // by the host itself
	Silent   Kind = "without answer" // when asked
	Full     Kind = "too full"
	Later    Kind = "not needed" // others were better
	Excluded Kind = "excluded"   // by where the lane may go
	Has      Kind = "with an Instance of it"
	Foreign  Kind = "not the tenant's"
	Barred   Kind = "not letting it be root (spec.root)"
)

func (v Verdict) rank() int {
	return slices.Index([]Kind{Chosen, Refused, Silent, Full, Later, Barred, Excluded, Has, Foreign}, v.Kind)
}

// Declined is a host's no to whatever lane, and why: it does not say what it has placed.
type Declined string

func (d Declined) Error() string { return string(d) }

// Why explains a decision. It has a line for the chosen host, for each host that was asked and for each that
// a change would help; it groups the others by what they have in common. It names lanes of others.
func (d Decision) Why() string {
	var text strings.Builder
	switch {
	case d.Host != "":
		fmt.Fprintf(&text, "%s: on host %s\n", d.Lane, d.Host)
	case d.Pending:
		fmt.Fprintf(&text, "%s: pending, hosts have refused it\n", d.Lane)
	default:
		fmt.Fprintf(&text, "%s: no host takes it\n", d.Lane)
	}
	for i := 0; i < len(d.Verdicts); {
		v := d.Verdicts[i]
		var who []string
		for ; i < len(d.Verdicts) && v.alike(d.Verdicts[i], len(who)); i++ {
			who = append(who, fmt.Sprintf("%s (%s)", d.Verdicts[i].Host, d.Verdicts[i].Site))
		}
		fmt.Fprintf(&text, "  %s: %s", strings.Join(who, ", "), v.Kind)
		if v.Why != "" {
			fmt.Fprintf(&text, ": %s", v.Why)
		}
		if v.Change != "" {
			fmt.Fprintf(&text, "; cheapest change: %s", v.Change)
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// alike reports whether another verdict, that many places after this one, may share its line.
func (v Verdict) alike(o Verdict, after int) bool {
	return after == 0 || v.Kind == o.Kind && v.Why == o.Why && v.Change == o.Change &&
		slices.Contains([]Kind{Silent, Full, Later, Barred, Excluded, Has, Foreign}, v.Kind)
}

// Brief is what the owner of the lane may read of a decision. It says nothing about other lanes, or about
// hosts that the owner may not use, and not of how many hosts something is true: whoever asks for lanes of
// many sizes would learn by that how full each host is.
func (d Decision) Brief() string {
	if d.Host != "" {
		return "on host " + d.Host
	}
	is, change, moves := map[Kind]bool{}, "", false
	var least plan.Price
	for _, v := range d.Verdicts {
		is[v.Kind] = true
		switch {
		case v.Change == "":
		case !v.Own:
			moves = true
		case change == "" || v.price.Compare(least) < 0:
			least = v.price
			change = fmt.Sprintf("; cheapest change: %s (then host %s takes it)", v.Change, v.Host)
		}
	}
	if moves && change == "" {
		change = "; an operator could make room for it"
	}
	var all []string
	for _, k := range []Kind{Refused, Silent, Full, Barred, Excluded, Later, Has} {
		if is[k] {
			all = append(all, string(k))
		}
	}
	nowhere := "no host takes it: "
	if is[Has] {
		nowhere = "no other host takes it: "
	}
	return nowhere + cmp.Or(strings.Join(all, ", "), "there is none where it may be") + change
}
