package search_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"isolane.dev/isolane/prove/search"
	"isolane.dev/isolane/results"
)

// system says what is lost in trial n at a load; less than 0 makes the trial void, and doubt one in doubt.
type system func(load float64, n int) float64

const doubt = 2

func lossSearch(from, to, width float64) results.Search {
	s := results.Search{Name: "s", Kind: results.Bounds, Unit: "/s", Window: results.Nanoseconds(time.Second),
		Points: search.Grid(from, to, width), Goals: search.LossGoals(time.Second, 21*time.Second, 60*time.Second)}
	s.Limit = search.Limit(s)
	return s
}

// play searches a system to the end.
func play(t interface{ Fatalf(string, ...any) }, s results.Search, f system) []results.Trial {
	var trials []results.Trial
	at := map[float64]int{}
	for {
		point, more := search.Next(s, trials)
		if !more {
			return trials
		}
		if len(trials) > s.Limit || !slices.Contains(s.Points, point) {
			t.Fatalf("trial %d of at most %d at %g", len(trials)+1, s.Limit, point)
		}
		trial := results.Trial{Point: point}
		if len(trials) == 0 {
			trial.Dropped = search.WarmUp
		} else {
			at[point]++
		}
		if loss := f(point, at[point]); loss < 0 {
			trial.Void = []string{"steal"}
		} else if loss == doubt {
			trial.Doubts = []string{"the client could not keep up"}
		} else {
			trial.Loss = &loss
			for _, g := range s.Goals {
				trial.Held = append(trial.Held, loss <= g.Loss)
			}
		}
		trials = append(trials, trial)
	}
}

// shown are the brackets in short: holds..fails, – for none.
func shown(brackets []results.Bracket) (all []string) {
	text := func(v *float64) string {
		if v == nil {
			return "–"
		}
		return fmt.Sprintf("%g", *v)
	}
	for _, b := range brackets {
		all = append(all, text(b.Holds)+".."+text(b.Fails))
	}
	return all
}

func TestSystems(t *testing.T) {
	every := func(n, k int) float64 { // each kth trial loses 1%
		if n%k == 0 {
			return 0.01
		}
		return 0
	}
	for _, c := range []struct {
		name string
		f    system
		want []string // of a grid of 100, 200, 400, 800, 1600
		note string   // of the last bracket
	}{
		{"sharp", func(load float64, _ int) float64 { return max(0, 1-700/load) }, []string{"400..800", "400..800", "400..800"}, ""},
		{"sharp, 0.4% is lost from 200 on", func(load float64, _ int) float64 {
			return map[bool]float64{false: 0.004, true: 0.3}[load > 1000] * math.Floor(min(1, load/200))
		},
			[]string{"100..200", "100..200", "800..1600"}, ""},
		{"noisy: a fourth of the trials from 400 on, all at 1600", func(load float64, n int) float64 {
			return map[bool]float64{true: every(n, 4)}[load >= 400] + map[bool]float64{true: 0.1}[load >= 1600]
		}, []string{"800..1600", "200..400", "800..1600"}, ""},
		{"noisy: a thirtieth of the trials", func(_ float64, n int) float64 { return every(n, 30) },
			[]string{"1600..–", "1600..–", "1600..–"}, "it holds at the hardest point asked for, 1600/s"},
		{"noisy: two thirds of the trials from 800 on", func(load float64, n int) float64 {
			return map[bool]float64{true: 0.01 - every(n, 3)}[load >= 800]
		}, []string{"400..800", "400..800", "400..800"}, ""},
		{"dead", func(float64, int) float64 { return 1 }, []string{"–..100", "–..100", "–..100"},
			"it does not hold at the easiest point asked for, 100/s"},
		{"unlimited", func(float64, int) float64 { return 0 }, []string{"1600..–", "1600..–", "1600..–"},
			"it holds at the hardest point asked for, 1600/s"},
		{"the client's limit", func(load float64, _ int) float64 { return map[bool]float64{true: doubt}[load > 500] },
			[]string{"400..–", "400..–", "400..–"}, "800/s could not be judged, 3 of 3 trials are void or in doubt: the client could not keep up"},
		{"always void", func(float64, int) float64 { return -1 }, []string{"–..–", "–..–", "–..–"},
			"100/s could not be judged, 3 of 3 trials are void or in doubt: steal"},
		{"those that would fail are in doubt", func(load float64, n int) float64 { return doubt * math.Floor(min(1, load/400)) * float64((n+1)%2) },
			[]string{"1600..–", "200..–", "1600..–"}, "it holds at the hardest point asked for, 1600/s"},
		{"now and then void", func(load float64, n int) float64 { return max(0, 1-700/load) - map[bool]float64{true: 9}[n%4 == 0] },
			[]string{"400..800", "400..800", "400..800"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := lossSearch(100, 1600, 1)
			brackets := search.Judge(s, play(t, s, c.f))
			if d := cmp.Diff(c.want, shown(brackets)); d != "" {
				t.Error(d)
			}
			if got := strings.Join(brackets[2].Notes, "; "); got != c.note {
				t.Errorf("note %q, want %q", got, c.note)
			}
		})
	}
}

// What is lost at the load that holds is not carried, and the first goal tells the others where to begin.
func TestConditionalThroughput(t *testing.T) {
	s := lossSearch(100, 1600, 0.01)
	trials := play(t, s, func(load float64, n int) float64 {
		return map[bool]float64{true: 0.004}[load > 500] + map[bool]float64{true: 0.1}[load > 1000]
	})
	b := search.Judge(s, trials)
	if *b[0].Throughput != *b[0].Holds || math.Abs(*b[2].Throughput-*b[2].Holds*0.996) > 1e-6 || *b[2].Holds < 990 {
		t.Errorf("%v: %g, %g", shown(b), *b[0].Throughput, *b[2].Throughput)
	}
	if steps := 9 * 11; len(trials) > 1+steps+57+4+steps { // 280 points: 9 bisections of 11 trials; where it ended: 57, and 4; the rest for partial drop
		t.Errorf("%d trials", len(trials))
	}
}

func TestLimit(t *testing.T) {
	s := lossSearch(100, 1600, 1)
	s.Limit = 20
	trials := play(t, s, func(float64, int) float64 { return 0 })
	b := search.Judge(s, trials)[0]
	if d := cmp.Diff([]string{"ended after 20 trials, before the bracket was as narrow as asked"}, b.Notes); d != "" || len(trials) != 20 {
		t.Errorf("%d trials: %s", len(trials), d)
	}
}

// A load that holds above one that fails does not count, and it is said.
func TestNotMonotone(t *testing.T) {
	s := lossSearch(1, 64, 1) // 1, 2, 4 … 64
	var trials []results.Trial
	for _, load := range []float64{64, 2, 8, 32, 4} { // the first is the warm-up
		for range 60 {
			loss := map[bool]float64{true: 1}[load == 8]
			trial := results.Trial{Point: load, Loss: &loss, Held: []bool{loss == 0, loss == 0, loss == 0}}
			if load == 64 {
				trial.Dropped = search.WarmUp
			}
			trials = append(trials, trial)
		}
	}
	b := search.Judge(s, trials)[0]
	if d := cmp.Diff([]string{"4..8"}, shown([]results.Bracket{b})); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"not monotone: it holds at 32/s and not at 8/s, which counts"}, b.Notes); d != "" {
		t.Error(d)
	}
	if point, more := search.Next(s, trials); more {
		t.Errorf("another trial at %g, although all is settled", point)
	}
}

// The smallest number of CPUs: all levels are settled, whatever the others say.
func TestSmallest(t *testing.T) {
	s := results.Search{Kind: results.Smallest, Points: []float64{8, 4, 2, 1}, Window: results.Nanoseconds(time.Second),
		Goals: search.Goals("goodput at least 99 of 100", time.Second, 3*time.Second, 5*time.Second)}
	s.Limit = search.Limit(s)
	for _, c := range []struct {
		works []float64 // these numbers of CPUs
		want  string
		note  string
	}{
		{[]float64{8, 4}, "4..2", ""},
		{[]float64{8, 4, 2, 1}, "1..–", "it holds at the hardest point asked for, 1"},
		{nil, "–..8", "it does not hold at the easiest point asked for, 8"},
		{[]float64{8, 2, 1}, "8..4", "not monotone: it holds at 2 and not at 4, which counts"},
	} {
		trials := play(t, s, func(p float64, _ int) float64 { return map[bool]float64{false: 1}[slices.Contains(c.works, p)] })
		b := search.Judge(s, trials)
		if got := shown(b); got[0] != c.want || got[1] != c.want || strings.Join(b[0].Notes, "; ") != c.note {
			t.Errorf("%v: %v %q, want %s %q", c.works, got, b[0].Notes, c.want, c.note)
		}
		for _, p := range s.Points {
			if !slices.ContainsFunc(trials[1:], func(t results.Trial) bool { return t.Point == p }) {
				t.Errorf("%v: nothing was tried at %g", c.works, p)
			}
		}
		if trials[1].Point != 8 || trials[2].Point != 4 || trials[3].Point != 2 || trials[4].Point != 1 {
			t.Errorf("%v: trials are not made in turns", c.works)
		}
	}
}

// Appendix C of RFC 9971, the goal "1s final": when a load is classified, and what its conditional throughput
// is.
func TestExampleOfRFC9971(t *testing.T) {
	s := results.Search{Kind: results.Bounds, Window: results.Nanoseconds(time.Second), Points: []float64{1e6}, Limit: 1000,
		Goals: []results.SearchGoal{{Loss: 0.005, Exceed: 0.5, Sum: results.Nanoseconds(120 * time.Second)}}}
	trials := []results.Trial{{Point: 1e6, Dropped: search.WarmUp}}
	add := func(n int, loss float64) {
		for range n {
			trials = append(trials, results.Trial{Point: 1e6, Loss: &loss, Held: []bool{loss <= 0.005}})
		}
	}
	for _, step := range []struct {
		n          int
		loss       float64
		want       string
		throughput float64
	}{{59, 0, "–..–", 0}, {1, 0.01, "–..–", 0}, {59, 0.01, "–..–", 0}, {1, 0, "1e+06..–", 1e6}} {
		add(step.n, step.loss)
		b := search.Judge(s, trials)
		if got := shown(b); got[0] != step.want || b[0].Throughput != nil && *b[0].Throughput != step.throughput {
			t.Errorf("%d trials: %v, throughput %v", len(trials)-1, got, b[0].Throughput)
		}
	}
}

// Whatever is lost when, the search ends within its limit with brackets that another count of its trials
// confirms.
func TestAnySystem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := lossSearch(10, rapid.SampledFrom([]float64{20, 1000}).Draw(t, "to"), rapid.SampledFrom([]float64{0.05, 0.5}).Draw(t, "width"))
		ill := map[float64]int{}
		for _, p := range s.Points {
			ill[p] = rapid.IntRange(0, 20).Draw(t, "twentieths of the trials that lose")
		}
		if rapid.Bool().Draw(t, "monotone") {
			for k, p := range s.Points[1:] {
				ill[p] = max(ill[p], ill[s.Points[k]])
			}
		}
		random, doubtful := rapid.IntRange(0, 99), rapid.IntRange(0, 20).Draw(t, "hundredths that are in doubt")
		trials := play(t, s, func(load float64, _ int) float64 {
			if random.Draw(t, "chance") < doubtful {
				return doubt
			}
			if random.Draw(t, "chance")%20 < ill[load] {
				return 0.002 * float64(random.Draw(t, "loss")%5)
			}
			return 0
		})
		got := search.Judge(s, trials)
		want := counted(s, trials)
		if d := cmp.Diff(want, shown(got)); d != "" || len(trials) >= s.Limit {
			t.Fatalf("%d trials of at most %d: %s", len(trials), s.Limit, d)
		}
		for i, b := range got {
			last := s.Points[len(s.Points)-1]
			settled := strings.Contains(strings.Join(b.Notes, ""), "could not be judged") || b.Holds != nil && *b.Holds == last || b.Fails != nil && *b.Fails == s.Points[0] ||
				b.Holds != nil && b.Fails != nil && slices.Index(s.Points, *b.Holds)+1 == slices.Index(s.Points, *b.Fails)
			if !settled {
				t.Fatalf("goal %d: %v is not settled", i, shown(got))
			}
		}
		if gap := search.GapOf(got[0], got[1]); gap != nil && (gap.Low > gap.Estimate+1e-9 || gap.High != nil && gap.Estimate > *gap.High+1e-9) {
			t.Fatalf("%+v", *gap)
		}
	})
}

// counted finds the brackets by counting whole trials of a second each.
func counted(s results.Search, trials []results.Trial) (all []string) {
	for _, g := range s.Goals {
		need := int(g.Sum / s.Window)
		verdict := func(load float64) (holds, fails, unclear bool) {
			good, bad, odd := 0, 0, 0
			for _, t := range trials[1:] {
				switch {
				case t.Point != load:
				case len(t.Doubts) > 0:
					odd++
				case *t.Loss <= g.Loss:
					good++
				default:
					bad++
				}
			}
			missing := max(0, need-good-bad-odd)
			few := func(n int) bool { return 20*n <= int(math.Round(20*g.Exceed))*(good+bad+odd+missing) }
			return few(bad + odd + missing), !few(bad), missing == 0 || odd >= 3 && odd > good+bad
		}
		holds, fails, open := "–", "–", false
		for _, load := range s.Points {
			h, f, unclear := verdict(load)
			if f {
				fails = fmt.Sprintf("%g", load)
				break
			}
			if h {
				holds, open = fmt.Sprintf("%g", load), false
			}
			open = open || !h && unclear
		}
		if open {
			fails = "–"
		}
		all = append(all, holds+".."+fails)
	}
	return all
}

func TestGrid(t *testing.T) {
	for _, c := range []struct {
		from, to, width float64
		want            []float64
	}{{1, 8, 1, []float64{1, 2, 4, 8}}, {0.5, 2, 1, []float64{0.5, 1, 2}}, {1, 5, 0.1, []float64{1, 2, 3, 4, 5}}, {100, 101, 0.5, []float64{100, 101}}} {
		if d := cmp.Diff(c.want, search.Grid(c.from, c.to, c.width)); d != "" {
			t.Errorf("%v: %s", c, d)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.Float64Range(0.001, 1e5).Draw(t, "from")
		to := from * rapid.Float64Range(1.01, 1e4).Draw(t, "times")
		width := rapid.Float64Range(0.005, 2).Draw(t, "width")
		all := search.Grid(from, to, width)
		if all[0] != from || all[len(all)-1] != to {
			t.Fatal(all)
		}
		for i := 1; i < len(all); i++ {
			most := all[i-1] * (1 + width + 1e-6)
			if all[i] == math.Trunc(all[i]) {
				most++ // whole numbers are rounded
			}
			if all[i] <= all[i-1] || all[i] > most {
				t.Fatalf("%g after %g", all[i], all[i-1])
			}
		}
	})
}

// The gap of two brackets, by hand.
func TestGap(t *testing.T) {
	at := func(holds, fails float64) results.Bracket {
		b := results.Bracket{}
		if holds > 0 {
			b.Holds = &holds
		}
		if fails > 0 {
			b.Fails = &fails
		}
		return b
	}
	high := 0.5
	for _, c := range []struct {
		first, second results.Bracket
		want          *results.Gap
	}{
		{at(120, 150), at(100, 110), &results.Gap{Estimate: 0.2, Low: 120.0/110 - 1, High: &high}},
		{at(120, 0), at(100, 110), &results.Gap{Estimate: 0.2, Low: 120.0/110 - 1}},
		{at(120, 0), at(120, 0), nil},
		{at(120, 150), at(0, 100), nil},
	} {
		if d := cmp.Diff(c.want, search.GapOf(c.first, c.second), cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-12 })); d != "" {
			t.Error(d)
		}
	}
}
