package cpuset

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"0\n", "0"},
		{" 2-5,10 ", "2-5,10"},
		{"10,2-5", "2-5,10"},
		{"0-3,2-6", "0-6"},
		{"0-15:2/4", "0-1,4-5,8-9,12-13"},
		{"8191", "8191"},
	} {
		got, err := Parse(c.in)
		if err != nil || got.String() != c.want {
			t.Errorf("Parse(%q) = %q, %v; want %q", c.in, got, err, c.want)
		}
	}
	for _, in := range []string{"5-2", "8192", "-1", "+1", "1,,2", "a", "1-", "0-3:2", "0-3:0/2", "0-3:3/2", "3:1/2", "all", "N", "0x3"} {
		if got, err := Parse(in); err == nil {
			t.Errorf("Parse(%q) = %q; want an error", in, got)
		}
	}
}

func TestParseWithin(t *testing.T) {
	possible := MustParse("0-7")
	for in, want := range map[string]string{"all": "0-7", "6-N": "6-7", "N": "7", "all:1/2": "0,2,4,6"} {
		if got, err := ParseWithin(in, possible); err != nil || got.String() != want {
			t.Errorf("ParseWithin(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestMask(t *testing.T) {
	for mask, list := range map[string]string{"3": "0-1", "1,00000000": "32", "ffffffff,ffffffff": "0-63", "0": ""} {
		got, err := ParseMask(mask)
		if err != nil || got != MustParse(list) || got.Mask() != mask {
			t.Errorf("ParseMask(%q) = %q printed %q, %v; want %q", mask, got, got.Mask(), err, list)
		}
	}
	for _, bad := range []string{"", "g", "1,123456789", strings.Repeat("1,", 300) + "1"} {
		if got, err := ParseMask(bad); err == nil {
			t.Errorf("ParseMask(%q) = %q; want an error", bad, got)
		}
	}
}

func TestEmpty(t *testing.T) {
	var s Set
	if s.First() != -1 || s.Last() != -1 || s.Len() != 0 || s.Contains(0) || s != Of() || s != Of(3).Difference(Of(3)) {
		t.Error("the zero Set is not the empty set")
	}
}

func TestJSON(t *testing.T) {
	var v struct{ CPUs Set }
	if err := json.Unmarshal([]byte(`{"CPUs":"2-5,10"}`), &v); err != nil || v.CPUs != MustParse("2-5,10") {
		t.Errorf("got %q, %v", v.CPUs, err)
	}
}

// The operations agree with those on maps, and printing and parsing are inverse.
func TestAgainstMaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) ([]int, map[int]bool, Set) {
			cpus := rapid.SliceOf(rapid.OneOf(rapid.IntRange(0, 70), rapid.IntRange(0, Max))).Draw(t, name)
			m := map[int]bool{}
			for _, c := range cpus {
				m[c] = true
			}
			return cpus, m, Of(cpus...)
		}
		_, ma, a := draw("a")
		_, mb, b := draw("b")
		probe := func(c int) {
			if a.Contains(c) != ma[c] || a.Union(b).Contains(c) != (ma[c] || mb[c]) ||
				a.Intersection(b).Contains(c) != (ma[c] && mb[c]) || a.Difference(b).Contains(c) != (ma[c] && !mb[c]) {
				t.Fatalf("CPU %d: a=%q b=%q", c, a, b)
			}
		}
		for c := range 80 {
			probe(c)
		}
		for c := range mb {
			probe(c)
		}
		if a.Len() != len(ma) || len(a.Slice()) != len(ma) {
			t.Fatalf("%q has %d members, want %d", a, a.Len(), len(ma))
		}
		if back, err := Parse(a.String()); err != nil || back != a {
			t.Fatalf("%q read back as %q, %v", a, back, err)
		}
		if back, err := ParseMask(a.Mask()); err != nil || back != a {
			t.Fatalf("%q as a mask read back as %q, %v", a, back, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"0-3,7", "0-15:2/4", "all", "N", "5-2", "8191", "0-8191:1/8191", "1-", ",", "::", "0-3:/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		s, err := Parse(in)
		if err != nil {
			return
		}
		if back, err := Parse(s.String()); err != nil || back != s {
			t.Fatalf("%q: %q read back as %q, %v", in, s, back, err)
		}
	})
}
