// Package quantity reads and prints sizes, durations and bit rates, each in one way.
package quantity

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bytes is a size in bytes: "1Gi", "512Mi", "128Ki", "2G" (decimal), "64".
type Bytes uint64

// unit is a suffix and its factor; the larger come first, so that printing takes the largest.
type unit struct {
	suffix string
	factor uint64
}

func byteUnits() []unit {
	return []unit{
		{"Ti", 1 << 40}, {"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10},
		{"T", 1e12}, {"G", 1e9}, {"M", 1e6}, {"k", 1e3}, {"", 1},
	}
}

func rateUnits() []unit {
	return []unit{{"Tbit/s", 1e12}, {"Gbit/s", 1e9}, {"Mbit/s", 1e6}, {"kbit/s", 1e3}, {"bit/s", 1}}
}

// ParseBytes reads a size.
func ParseBytes(s string) (Bytes, error) {
	v, err := parse(s, byteUnits(), sizeUnit)
	if err != nil {
		return 0, fmt.Errorf("size %q: %w", s, err)
	}
	return Bytes(v), nil
}

// String prints the size with the largest binary unit that divides it.
func (b Bytes) String() string { return format(uint64(b), byteUnits()[:4], "") }

// MarshalText prints the size.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText reads a size.
func (b *Bytes) UnmarshalText(text []byte) (err error) {
	*b, err = ParseBytes(string(text))
	return err
}

// UnmarshalJSON reads a size, also one without quotes: 64.
func (b *Bytes) UnmarshalJSON(data []byte) error { return fromJSON(data, b) }

// BitRate is a rate in bit/s: "1Gbit/s", "100Mbit/s", or as tc(8) has it "1Gbit". 0 is an absent one,
// and is never read.
type BitRate uint64

// ParseBitRate reads a rate.
func ParseBitRate(s string) (BitRate, error) {
	text := s
	if strings.HasSuffix(text, "bit") {
		text += "/s"
	}
	v, err := parse(text, rateUnits(), rateUnit)
	if s == "0" || err == nil && v == 0 {
		err = errors.New("expected a rate above 0")
	}
	if err != nil {
		return 0, fmt.Errorf("rate %q: %w", s, err)
	}
	return BitRate(v), nil
}

// String prints the rate with the largest unit that divides it.
func (r BitRate) String() string { return format(uint64(r), rateUnits(), "bit/s") }

// MarshalText prints the rate.
func (r BitRate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a rate.
func (r *BitRate) UnmarshalText(text []byte) (err error) {
	*r, err = ParseBitRate(string(text))
	return err
}

// UnmarshalJSON reads a rate; a number without a unit is refused.
func (r *BitRate) UnmarshalJSON(data []byte) error { return fromJSON(data, r) }

// Duration is a time.Duration that is written as in Go: "100us", "1.5ms", "2s". It is not negative.
type Duration time.Duration

// ParseDuration reads a duration.
func ParseDuration(s string) (Duration, error) {
	d, err := time.ParseDuration(s)
	switch compact := strings.ReplaceAll(s, " ", ""); {
	case err != nil && compact != s:
		if _, cerr := time.ParseDuration(compact); cerr == nil {
			return 0, fmt.Errorf("duration %q: %w", s, errors.New("expected "+compact))
		}
		fallthrough
	case err != nil:
		return 0, fmt.Errorf("duration %q: %w", s, errors.New("expected a number and ns, us, ms, s, m or h"))
	case d < 0:
		return 0, fmt.Errorf("duration %q: %w", s, errors.New("expected no negative time"))
	}
	return Duration(d), nil
}

// Duration returns d as the standard library has it.
func (d Duration) Duration() time.Duration { return time.Duration(d) }

// String prints the duration, with "us" for microseconds.
func (d Duration) String() string { return strings.Replace(time.Duration(d).String(), "µ", "u", 1) }

// MarshalText prints the duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a duration.
func (d *Duration) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDuration(string(text))
	return err
}

// UnmarshalJSON reads a duration; a number without a unit is refused, but for 0.
func (d *Duration) UnmarshalJSON(data []byte) error { return fromJSON(data, d) }

// parse reads a decimal number and one of the units. A fraction must come out whole: "1.5Gi".
// An error names the unit that another spelling was meant to be; plain reduces both to what they share.
func parse(s string, units []unit, plain func(string) string) (uint64, error) {
	number := strings.TrimRightFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	suffix := strings.TrimSpace(s[len(number):])
	for _, u := range units {
		if u.suffix != suffix {
			continue
		}
		if v, err := strconv.ParseUint(number, 10, 64); err == nil {
			if v > math.MaxUint64/u.factor {
				return 0, errors.New("is too large")
			}
			return v * u.factor, nil
		}
		f, err := strconv.ParseFloat(number, 64)
		product := f * float64(u.factor)
		whole := product == math.Trunc(product) && product <= 1<<53
		if err != nil || !whole || strings.ContainsAny(number, "eExXpP_+-") {
			break
		}
		return uint64(product), nil
	}
	var names []string
	for _, u := range units {
		if u.suffix == "" {
			continue
		}
		_, err := strconv.ParseFloat(number, 64)
		if err == nil && u.suffix != suffix && plain(u.suffix) == plain(suffix) {
			return 0, fmt.Errorf("expected %s%s", number, u.suffix)
		}
		names = append(names, u.suffix)
	}
	return 0, fmt.Errorf("expected a whole number of the units %s", strings.Join(names, ", "))
}

// sizeUnit is mi for Mi, MiB and mib, and m for M and MB.
func sizeUnit(unit string) string {
	return strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(unit), "ytes"), "b")
}

// rateUnit is g for Gbps, Gb/s and Gbit, but not for GB/s, which are bytes.
func rateUnit(unit string) string {
	unit = strings.TrimSuffix(strings.TrimSuffix(unit, "/s"), "ps")
	return strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(unit, "it"), "b"))
}

func format(v uint64, units []unit, base string) string {
	for _, u := range units {
		if v >= u.factor && v%u.factor == 0 {
			return strconv.FormatUint(v/u.factor, 10) + u.suffix
		}
	}
	return strconv.FormatUint(v, 10) + base
}

// fromJSON reads text in JSON, also without quotes. null is as a field that is not there.
func fromJSON(data []byte, into encoding.TextUnmarshaler) error {
	if string(data) == "null" {
		return nil
	}
	if len(data) >= 2 && data[0] == '"' && data[len(data)-1] == '"' {
		data = data[1 : len(data)-1]
	}
	return into.UnmarshalText(data)
}

// Percent is a part of 1: 0.05 is written "5%". 0 is an absent one, and is never read.
type Percent float64

// ParsePercent reads a percentage.
func ParsePercent(s string) (Percent, error) {
	number, ok := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !ok || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%q: expected a percentage such as 5%%", s)
	}
	if v == 0 {
		return 0, fmt.Errorf("%q: expected more than 0%%", s)
	}
	return Percent(v / 100), nil
}

// String prints the percentage.
func (p Percent) String() string { return fmt.Sprintf("%.6g%%", 100*float64(p)) }

// MarshalText prints the percentage.
func (p Percent) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a percentage.
func (p *Percent) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePercent(string(text))
	return err
}

// UnmarshalJSON reads a percentage; one without quotes and sign is refused.
func (p *Percent) UnmarshalJSON(data []byte) error { return fromJSON(data, p) }
