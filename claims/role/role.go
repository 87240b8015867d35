// Package role defines the names in formulas: which figures of a published table they stand for.
package role

import (
	"slices"
	"strings"

	"isolane.dev/isolane/claims/row"
)

// Role says which figures a name in a formula stands for.
type Role struct {
	Dims             []row.Dimension
	Words, Not, Only string   // of the metric: one of Words, none of Not; with Only, no words but Words and Only
	Stats            []string // empty: no statistic, or the mean
	Settings         string   // conditions that give it too, separated by commas
	Nominal          bool     // exact, however it is printed
	Asked            bool     // also what is claimed, a limit or a bound
	Fastest          bool     // the largest of the source, if there are several
	Change           bool     // also differences between two figures
	Each             string   // only figures per one of these: "cycles per packet", or in cycles/packet
}

// Fits reports whether the name can stand for a row.
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
