// Package role has the names of formulas, and says which figures of a published table take their places.
package role

import (
	"slices"
	"strings"

	"isolane.dev/isolane/claims/row"
)

// Role is which figures take a place in a formula.
type Role struct {
	Dims             []row.Dimension
	Words, Not, Only string   // of the metric: one of these, none of those; no other
	Stats            []string // none and mean where there are none
	Settings         string   // conditions that say it too, by comma
	Nominal          bool     // exact, however it is printed
	Asked            bool     // also what is claimed, a limit or a bound
	Fastest          bool     // of the source, however many there are
	Change           bool     // also a difference between two figures
	Each             string   // only a figure of each of these: "cycles per packet", or in cycles/packet
}

// Fits says whether a row can take the place.
func (r *Role) Fits(w *row.Row) bool {
	if !slices.Contains(r.Dims, w.Unit.Dim) || w.Unit.Points ||
		r.Each != "" && !slices.Contains(strings.Fields(r.Each), w.Of()) ||
		r.Each == "" && r.Only == "" && r.Words != "" && w.IsEach() {
		return false
	}
	words := strings.Fields(r.Words)
	stats := r.Stats
	if stats == nil {
		stats = []string{"", "mean"}
	}
	event, _, _ := strings.Cut(strings.ToLower(w.UnitText), "/") // also of the unit: req/s, Mpps
	return slices.Contains(stats, w.Stat.Kind) &&
		(r.Asked || w.Measured()) && (len(words) == 0 || w.Has(words...) || slices.Contains(words, event)) &&
		!w.Has(strings.Fields(r.Not)...) && (r.Only == "" || len(row.Drop(w.Words, append(words,
		strings.Fields(r.Only)...))) == 0) && (!w.IsChange() || r.Change)
}
