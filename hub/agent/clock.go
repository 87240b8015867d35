package agent

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// clock measures how far this host's clock differs from its hub's, by which certificates are valid. Each
// answer of the hub carries the time. Before the first answer the difference counts as zero.
type clock struct {
	ahead atomic.Int64 // nanoseconds; negative if this host's clock is behind
}

// hub returns the time at the hub.
func (c *clock) hub() time.Time { return time.Now().Add(-time.Duration(c.ahead.Load())) }

// listen returns a transport that takes the hub's time from each answer.
func (c *clock) listen(by http.RoundTripper) http.RoundTripper { return listener{by, c} }

type listener struct {
	http.RoundTripper
	*clock
}

// WrappedRoundTripper returns the transport whose connections can be closed.
func (l listener) WrappedRoundTripper() http.RoundTripper { return l.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (l listener) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		if at, perr := http.ParseTime(answer.Header.Get("Date")); perr == nil {
			l.ahead.Store(int64(time.Since(at)))
		}
	}
	return answer, err
}

// leastClockDifference is the smallest difference that is reported.
const leastClockDifference = time.Minute

// clockMoved reads the difference of the clocks, and reports whether it has changed enough to be reported.
func (a *Agent) clockMoved() bool {
	was, ahead := a.ahead, time.Duration(a.clock.ahead.Load())
	switch {
	case ahead.Abs() < leastClockDifference/2:
		a.ahead = 0
	case (ahead - was).Abs() >= leastClockDifference:
		a.ahead = ahead.Round(leastClockDifference)
	}
	return a.ahead != was
}

// clockDifference describes how the clocks differ, or returns "" if they do not.
func (a *Agent) clockDifference() string {
	switch {
	case a.ahead >= leastClockDifference:
		return fmt.Sprintf("the clock of this host is %s ahead of the hub's", span(a.ahead))
	case a.ahead <= -leastClockDifference:
		return fmt.Sprintf("the clock of this host is %s behind the hub's", span(-a.ahead))
	}
	return ""
}

// span formats a duration for people, in days if it is long.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day {
		return fmt.Sprintf("%d days", d.Round(day)/day)
	}
	return strings.TrimSuffix(d.String(), "0s")
}

// explainStranger explains an error if another hub than the one that this host has joined has answered; for
// other errors it returns what explainClock does.
func explainStranger(err error) string {
	if _, is := errors.AsType[x509.UnknownAuthorityError](err); is {
		return "another hub has its address, and what runs goes on: isolane-hub rehome, with its token, " +
			"has this host follow it"
	}
	return explainClock(err)
}

// explainClock explains an error if this host's clock may be the cause: the server's certificate is not valid
// now.
func explainClock(err error) string {
	if invalid, is := errors.AsType[x509.CertificateInvalidError](err); is && invalid.Reason == x509.Expired {
		return fmt.Sprintf("its certificate is valid from %s to %s: expected the clock of this host to be right, "+
			"found %s", invalid.Cert.NotBefore.Format(time.DateOnly), invalid.Cert.NotAfter.Format(time.DateOnly),
			time.Now().UTC().Format(time.DateOnly))
	}
	return ""
}
