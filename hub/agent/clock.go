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

// clock is how this host's clock differs from that of its hub, by which certificates are valid: each answer
// of the hub has the time. Until there was one they are the same.
type clock struct {
	ahead atomic.Int64 // nanoseconds; negative where this host's is behind
}

// hub is the time at the hub.
func (c *clock) hub() time.Time { return time.Now().Add(-time.Duration(c.ahead.Load())) }

// listen returns a transport that reads the time in each answer.
func (c *clock) listen(by http.RoundTripper) http.RoundTripper { return listener{by, c} }

type listener struct {
	http.RoundTripper
	*clock
}

// RoundTrip is that of an http.RoundTripper.
func (l listener) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		if at, perr := http.ParseTime(answer.Header.Get("Date")); perr == nil {
			l.ahead.Store(int64(time.Since(at)))
		}
	}
	return answer, err
}

// apart is from which difference on it is told.
const apart = time.Minute

// compare looks how the clocks differ, and says whether that is much else than before.
func (a *Agent) compare() bool {
	was, ahead := a.ahead, time.Duration(a.clock.ahead.Load())
	switch {
	case ahead.Abs() < apart/2:
		a.ahead = 0
	case (ahead - was).Abs() >= apart:
		a.ahead = ahead.Round(apart)
	}
	return a.ahead != was
}

// differ says how the clocks differ, "" where they do not.
func (a *Agent) differ() string {
	switch {
	case a.ahead >= apart:
		return fmt.Sprintf("the clock of this host is %s ahead of the hub's", span(a.ahead))
	case a.ahead <= -apart:
		return fmt.Sprintf("the clock of this host is %s behind the hub's", span(-a.ahead))
	}
	return ""
}

// span is a time for people, in days where it is long.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day {
		return fmt.Sprintf("%d days", d.Round(day)/day)
	}
	return strings.TrimSuffix(d.String(), "0s")
}

// estranged says of an error that who answers is not the hub that this host has joined, else what untimely
// says.
func estranged(err error) string {
	if _, is := errors.AsType[x509.UnknownAuthorityError](err); is {
		return "another hub has its address, and what runs goes on: isolane-hub rehome, with its token, " +
			"has this host follow it"
	}
	return untimely(err)
}

// untimely says of an error that the clock of this host may be why: the certificate of a server is valid at
// other times.
func untimely(err error) string {
	if invalid, is := errors.AsType[x509.CertificateInvalidError](err); is && invalid.Reason == x509.Expired {
		return fmt.Sprintf("its certificate is valid from %s to %s: expected the clock of this host to be right, "+
			"found %s", invalid.Cert.NotBefore.Format(time.DateOnly), invalid.Cert.NotAfter.Format(time.DateOnly),
			time.Now().UTC().Format(time.DateOnly))
	}
	return ""
}
