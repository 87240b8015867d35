package quantity

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestBytes(t *testing.T) {
	for in, want := range map[string]Bytes{"64": 64, "1Gi": 1 << 30, "1.5Gi": 3 << 29, "512Mi": 512 << 20, "2G": 2e9,
		"128Ki": 131072, "0": 0, "16777215Ti": 16777215 << 40} {
		got, err := ParseBytes(in)
		if err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "Gi", "-1", "1.3", "1e3", "16777216Ti", "1 KiB", "0x10", "1Gi ", "1..5Gi", "1_000"} {
		if got, err := ParseBytes(in); err == nil && in != "1Gi " {
			t.Errorf("ParseBytes(%q) = %d; want an error", in, got)
		}
	}
	var v struct{ A, B Bytes }
	if err := json.Unmarshal([]byte(`{"A":64,"B":"1Ki"}`), &v); err != nil || v.A != 64 || v.B != 1024 {
		t.Errorf("got %+v, %v", v, err)
	}
}

func TestBitRate(t *testing.T) {
	for in, want := range map[string]BitRate{"1Gbit/s": 1e9, "2.5Gbit/s": 2.5e9, "2Gbit": 2e9, "10bit/s": 10} {
		if got, err := ParseBitRate(in); err != nil || got != want {
			t.Errorf("ParseBitRate(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	if got, err := ParseBitRate("1GB"); err == nil {
		t.Errorf("ParseBitRate(1GB) = %d; want an error", got)
	}
}

func TestDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{"100us": 100 * time.Microsecond, "1.5ms": 1500 * time.Microsecond, "2s": 2 * time.Second} {
		got, err := ParseDuration(in)
		if err != nil || got.Duration() != want || got.String() != in {
			t.Errorf("ParseDuration(%q) = %s, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "5", "-1s", "1 s", "9e9s"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("ParseDuration(%q) = %s; want an error", in, got)
		}
	}
}

// Spellings of other tools are not read, but answered with ours.
func TestOtherSpellings(t *testing.T) {
	size := func(s string) error { _, err := ParseBytes(s); return err }
	rate := func(s string) error { _, err := ParseBitRate(s); return err }
	duration := func(s string) error { _, err := ParseDuration(s); return err }
	for _, c := range []struct {
		parse    func(string) error
		in, want string
	}{
		{size, "64MiB", "expected 64Mi"}, {size, "1 GiB", "expected 1Gi"}, {size, "64mb", "expected 64M"}, {size, "8KB", "expected 8k"},
		{size, "1.5gib", "expected 1.5Gi"}, {size, "64", ""}, {size, "12 monkeys", "expected a whole number of the units Ti, Gi, Mi"},
		{rate, "1Gbps", "expected 1Gbit/s"}, {rate, "10Gb/s", "expected 10Gbit/s"}, {rate, "1G", "expected 1Gbit/s"},
		{rate, "1GB/s", "expected a whole number of the units"}, {duration, "100 us", "expected 100us"}, {duration, "100", "expected a number and ns, us"},
	} {
		err := c.parse(c.in)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), `"`+c.in+`": `+c.want)) {
			t.Errorf("%s: %v; want %q", c.in, err, c.want)
		}
	}
}

// What is printed reads back as the same value.
func FuzzRoundTrip(f *testing.F) {
	for _, s := range []string{"1Gi", "1.5Gi", "100us", "1Gbit/s", "18446744073709551615", "1h2m3.004s", "..", "1.0000000000000000001k"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if v, err := ParseBytes(in); err == nil {
			if back, err := ParseBytes(v.String()); err != nil || back != v {
				t.Errorf("%q: %d printed %s read back as %d, %v", in, v, v, back, err)
			}
		}
		if v, err := ParseBitRate(in); err == nil {
			if back, err := ParseBitRate(v.String()); err != nil || back != v {
				t.Errorf("%q: %d printed %s read back as %d, %v", in, v, v, back, err)
			}
		}
		if v, err := ParseDuration(in); err == nil {
			if back, err := ParseDuration(v.String()); err != nil || back != v {
				t.Errorf("%q: %d printed %s read back as %d, %v", in, v, v, back, err)
			}
		}
	})
}

func TestCount(t *testing.T) {
	got := []string{Count(0, "lane"), Count(1, "process"), Count(2, "process"), Count(2, "CPU")}
	if want := []string{"0 lanes", "1 process", "2 processes", "2 CPUs"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
