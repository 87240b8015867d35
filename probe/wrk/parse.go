package wrk

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// report is what wrk prints.
type report struct {
	requests uint64
	rate     float64 // requests/s
	transfer float64 // bytes/s
	// latency has the percentiles in nanoseconds; NaN if there was no reply.
	latency [4]float64

	connect, read, write, timeout uint64 // socket errors; a reply after its timeout may still arrive
	status                        uint64 // replies other than 2xx or 3xx
}

// errors returns the socket errors without the timeouts.
func (r report) errors() uint64 { return r.connect + r.read + r.write }

// unit is a suffix and its factor.
type unit struct {
	suffix string
	factor float64
}

// times returns wrk's units of time, in nanoseconds (time_units_us and time_units_s in its units.c).
func times() []unit {
	return []unit{{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", float64(time.Minute)}, {"h", float64(time.Hour)}}
}

// sizes returns wrk's units of bytes: powers of 1024 (binary_units in its units.c).
func sizes() []unit {
	return []unit{{"KB", 1 << 10}, {"MB", 1 << 20}, {"GB", 1 << 30}, {"TB", 1 << 40}, {"PB", 1 << 50}, {"B", 1}}
}

// parse parses wrk's report of a run with --latency (print_stats in its wrk.c).
func parse(output []byte) (report, error) {
	r := report{requests: math.MaxUint64, rate: math.NaN(), transfer: math.NaN()}
	for i := range r.latency {
		r.latency[i] = math.NaN()
	}
	for line := range strings.Lines(string(output)) {
		if err := r.line(strings.TrimSpace(line)); err != nil {
			return report{}, fmt.Errorf("wrk's report: %q: %w", strings.TrimSpace(line), err)
		}
	}
	switch {
	case r.requests == math.MaxUint64:
		return report{}, errors.New("wrk's report: expected a line with: requests in")
	case math.IsNaN(r.rate):
		return report{}, errors.New("wrk's report: expected a line with: Requests/sec")
	case math.IsNaN(r.transfer):
		return report{}, errors.New("wrk's report: expected a line with: Transfer/sec")
	case r.requests > 0 && math.IsNaN(r.latency[0]+r.latency[1]+r.latency[2]+r.latency[3]):
		return report{}, fmt.Errorf("wrk's report: expected the percentiles %s, of --latency", percentiles())
	}
	return r, nil
}

// line parses one line. It skips lines without figures that are needed.
func (r *report) line(line string) (err error) {
	words := strings.Fields(line)
	switch {
	case len(words) < 2:
	case len(words) > 2 && words[1] == "requests" && words[2] == "in":
		r.requests, err = strconv.ParseUint(words[0], 10, 63)
	case words[0] == "Requests/sec:":
		r.rate, err = number(words[1])
	case words[0] == "Transfer/sec:":
		r.transfer, err = scaled(words[1], sizes())
	case strings.HasPrefix(line, "Socket errors:"):
		_, err = fmt.Sscanf(line, "Socket errors: connect %d, read %d, write %d, timeout %d", &r.connect, &r.read,
			&r.write, &r.timeout)
	case strings.HasPrefix(line, "Non-2xx or 3xx responses:"):
		_, err = fmt.Sscanf(line, "Non-2xx or 3xx responses: %d", &r.status)
	case len(words) == 2:
		for i, q := range percentiles() {
			if words[0] == q+"%" {
				r.latency[i], err = scaled(words[1], times())
			}
		}
	}
	return err
}

// number parses a finite number that is not negative.
func number(s string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v >= 0 && v <= math.MaxFloat64) {
		return 0, fmt.Errorf("%q: expected a number", s)
	}
	return v, nil
}

// scaled parses a number with a unit.
func scaled(s string, units []unit) (float64, error) {
	digits := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	for _, u := range units {
		if s == digits+u.suffix {
			v, err := number(digits)
			if err == nil && v > math.MaxFloat64/u.factor {
				err = fmt.Errorf("%q: is too large", s)
			}
			return v * u.factor, err
		}
	}
	return 0, fmt.Errorf("%q: expected a number and its unit", s)
}
