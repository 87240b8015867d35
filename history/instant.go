package history

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Between returns the query for events between two times that a person has named, see Instant. Without until
// it has no end, because the clock may have been ahead. An error names the option.
func Between(since, until string, now time.Time) (q Query, err error) {
	if q.Since, err = Instant(since, now); err != nil {
		return q, fmt.Errorf("--since %w", err)
	}
	if until != "" {
		if q.Until, err = Instant(until, now); err != nil {
			return q, fmt.Errorf("--until %w", err)
		}
	}
	if cmp.Or(q.Until, now).Before(q.Since) {
		err = errors.New("--until: expected a time after --since")
	}
	return q, err
}

// Instant parses a time from a person: a duration ago (90m, 7d), a time of day in the last 24 hours (03:12),
// or a date with or without a time, in the time zone of now.
func Instant(text string, now time.Time) (time.Time, error) {
	days, isDays := strings.CutSuffix(text, "d")
	if n, err := strconv.ParseUint(days, 10, 16); isDays && err == nil {
		return now.AddDate(0, 0, -int(n)).UTC(), nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d).UTC(), nil
	}
	for _, layout := range []string{"15:04", time.TimeOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			at := time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, now.Location())
			if at.After(now) {
				at = at.AddDate(0, 0, -1)
			}
			return at.UTC(), nil
		}
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02 15:04", time.DateTime, time.RFC3339} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q: expected 90m, 7d, 03:12, 2026-11-23 or '2026-11-23 03:12'", text)
}
