package formula

import (
	"slices"
	"testing"

	"isolane.dev/isolane/claims/row"
)

func TestFormula(t *testing.T) {
	const f Formula = "( sent − received ) ÷ sent × all"
	figures := map[string]float64{"sent": 200, "received": 150}
	if got := f.Names(); !slices.Equal(got, []string{"sent", "received"}) {
		t.Error(got)
	}
	if got := f.Value(func(name string) row.Span { return row.Exactly(figures[name]) }); got != row.Exactly(0.25) {
		t.Error(got)
	}
	if got := f.Text(func(name string) string { return row.Number(figures[name]) }); got != "(200 − 150) ÷ 200 × 100%" {
		t.Error(got)
	}
	root := Formula("sent ÷ √ ( received × 6 )")
	if got := root.Value(func(name string) row.Span { return row.Exactly(figures[name]) }); got.Mid != 200./30 {
		t.Error(got)
	}
	if got := root.Text(func(name string) string { return name }); got != "sent ÷ √(received × 6)" {
		t.Error(got)
	}
	if got := Formula("a or b ÷ 2").Alternatives(); !slices.Equal(got, []Formula{"a", "b ÷ 2"}) {
		t.Error(got)
	}
	if got := Formula("").Alternatives(); got != nil {
		t.Error(got)
	}
}

// Inexact values give everything that they allow.
func TestSpan(t *testing.T) {
	of := func(name string) row.Span {
		return map[string]row.Span{"a": {Low: 1, Mid: 2, High: 3}, "b": {Low: 4, Mid: 5, High: 6}}[name]
	}
	for f, want := range map[Formula]row.Span{"a + b": {Low: 5, Mid: 7, High: 9}, "b − a": {Low: 1, Mid: 3, High: 5},
		"a × b": {Low: 4, Mid: 10, High: 18}, "2 × b ÷ a": {Low: 8. / 3, Mid: 5, High: 12}} {
		if got := f.Value(of); got != want {
			t.Errorf("%s: %v, expected %v", f, got, want)
		}
	}
}
