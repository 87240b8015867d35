package quantity

import (
	"encoding/json"
	"slices"
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
	for in, want := range map[string]BitRate{"1Gbit/s": 1e9, "2.5Gbit/s": 2.5e9, "10bit/s": 10} {
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
