package results

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/cpuset"
)

func sample(t *testing.T) Session {
	t.Helper()
	h := NewHistogram()
	for _, v := range []int64{1, 8_400, 59_000_000_000} {
		if err := h.RecordValue(v); err != nil {
			t.Fatal(err)
		}
	}
	packed, err := Encode(h)
	if err != nil {
		t.Fatal(err)
	}
	return Session{
		APIVersion: APIVersion, Kind: Kind, Schema: Schema,
		Scenario: Scenario{Name: "small", Mode: "quick", Blocks: 3, Seed: 7},
		Cells:    []Cell{{Name: "quiet-floating-bridge", Baseline: true, Application: cpuset.MustParse("0-1")}},
		Runs: []Run{{Cell: "quiet-floating-bridge", Measured: []Measurement{
			{Name: "rtt-udp-64-pingpong", Samples: map[string]Samples{"rtt-udp-64-pingpong": {Wanted: 3, Histogram: packed}},
				Worst: []Sample{{Begin: 1_000_000_000_000, End: 1_059_000_000_000}},
				Tail: &Tail{Quantile: 0.999, Samples: 1, Excess: 59_000_000_000, Unexplained: 58_000_000_000,
					Met: []Met{{Kind: "task", Name: "stress-ng", Took: 1_000_000_000}}}}}}},
	}
}

func TestWriteRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := Create(dir); err != nil {
		t.Fatal(err)
	}
	want := sample(t)
	if err := Write(dir, want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("read back (-want +got):\n%s", d)
	}
	h, err := got.Runs[0].Measured[0].Samples["rtt-udp-64-pingpong"].Histogram.Decode()
	if err != nil || h.TotalCount() != 3 || h.Min() != 1 || !h.ValuesAreEquivalent(h.ValueAtQuantile(50), 8_400) {
		t.Errorf("histogram read back with %d samples, min %d, P50 %d: %v", h.TotalCount(), h.Min(), h.ValueAtQuantile(50), err)
	}
	if err := Create(dir); !errors.Is(err, ErrHasResults) {
		t.Errorf("Create on a used directory: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// What is kept compressed is read as it was, is not overwritten by a new session, and is named if it is cut off.
func TestReadsPacked(t *testing.T) {
	dir := t.TempDir()
	want := sample(t)
	if err := Write(dir, want); err != nil {
		t.Fatal(err)
	}
	file, packed := filepath.Join(dir, File), filepath.Join(dir, Packed)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err = z.Write(data)
	if err = errors.Join(err, z.Close(), os.WriteFile(packed, b.Bytes(), 0o600), os.Remove(file)); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir)
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if err = Create(dir); !errors.Is(err, ErrHasResults) {
		t.Errorf("a new session there: %v", err)
	}
	if err = os.WriteFile(packed, b.Bytes()[:b.Len()/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = Read(dir); err == nil || !strings.Contains(err.Error(), packed+": ") {
		t.Errorf("cut off: %v", err)
	}
}

// Sessions of before 2026-11-21 lack the worst samples.
func TestReadsWithoutWorst(t *testing.T) {
	dir := t.TempDir()
	const text = `{"apiVersion":"isolane.dev/v1alpha1","kind":"ProveResult","schema":1,"runs":[{"cell":"a","measurements":
		[{"name":"rtt","metric":"rtt","rtt":{"protocol":"udp","latency":""}}],"witness":{"source":"bpf","intruders":null}}]}`
	if err := os.WriteFile(filepath.Join(dir, File), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Read(dir)
	if err != nil || s.Runs[0].Measured[0].Worst != nil || s.Runs[0].Measured[0].Tail != nil || s.Runs[0].Witness.Sources != nil {
		t.Errorf("%+v, %v", s.Runs, err)
	}
}

// Sessions of before 2026-11-22 have the tasks on a lane's CPUs apart, as intruders: they become sources, but
// for those that are among them already.
func TestReadsIntruders(t *testing.T) {
	dir := t.TempDir()
	const text = `{"apiVersion":"isolane.dev/v1alpha1","kind":"ProveResult","schema":1,"runs":[{"cell":"a"},{"cell":"b","witness":{
		"sources":[{"cpu":1,"kind":"kernel thread","name":"ksoftirqd/1","tid":20}],
		"intruders":[{"cpu":1,"tid":20,"comm":"ksoftirqd/1","kernel":true,"runs":9,"ranNanoseconds":50,"worstNanoseconds":7},
			{"cpu":1,"tid":99,"comm":"sshd","kernel":false,"runs":3,"ranNanoseconds":40,"worstNanoseconds":30,"remedy":"move it"}]}}]}`
	if err := os.WriteFile(filepath.Join(dir, File), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []Source{{CPU: 1, Kind: "kernel thread", Name: "ksoftirqd/1", TID: 20},
		{CPU: 1, Kind: "task", Name: "sshd", TID: 99, Count: new(uint64(3)), Total: new(Nanoseconds(40)),
			Longest: new(Nanoseconds(30)), Remedy: "move it"}}
	if d := cmp.Diff(want, s.Runs[1].Witness.Sources); d != "" {
		t.Error(d)
	}
}

func TestReadRefusesOtherDocuments(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"", "{", `{"apiVersion":"isolane.dev/v1alpha1","kind":"ProveResult","schema":3}`} {
		if err := os.WriteFile(filepath.Join(dir, File), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Read(dir)
		if err == nil || !strings.HasPrefix(err.Error(), filepath.Join(dir, File)+": ") {
			t.Errorf("read %q: %v", text, err)
		}
		if cut := text == "{" || text == ""; err != nil && strings.HasSuffix(err.Error(), "copy it again from where it was measured, or measure again into another directory") != cut {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// The first sessions do not say to which source a doubt belongs.
func TestDoubtOfFirstSessions(t *testing.T) {
	var all []Doubt
	if err := json.Unmarshal([]byte(`["no unit", {"source": "A", "text": "no length"}]`), &all); err != nil {
		t.Fatal(err)
	}
	if want := []Doubt{{Text: "no unit"}, {Source: "A", Text: "no length"}}; !slices.Equal(all, want) {
		t.Error(all)
	}
}

// At least a share p of the samples is at or below the percentile, and less than that below it.
func TestPercentile(t *testing.T) {
	for n := 1; n <= 3000; n += 1 + n/7 {
		h := NewHistogram()
		for v := range n {
			if err := h.RecordValue(int64(v) + 1); err != nil { // up to 2,047 each value has its own bin
				t.Fatal(err)
			}
		}
		for _, perMille := range []int{1, 500, 900, 990, 999, 1000} {
			p := float64(perMille) / 1000
			want := float64(max(1, (perMille*n+999)/1000)) // the rank, which is the value
			if got := Percentile(h, p, 0); want < 2048 && got != want {
				t.Errorf("%g of 1 to %d: %g, want %g", p, n, got, want)
			}
		}
		if got := Percentile(h, 0.5, uint64(n)+1); !math.IsInf(got, 1) {
			t.Errorf("more than half of %d lost: %g", 2*n+1, got)
		}
	}
}
