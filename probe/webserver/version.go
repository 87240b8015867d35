package webserver

import (
	"cmp"
	"context"
	"net/netip"
	"strings"
	"time"

	"isolane.dev/isolane/results"
)

// AddVersion adds what a server at an address says of itself within a second, as "nginx/1.22.1" or
// "Varnish/7.1", to what a measurement has found: it must be the same in what is compared.
func AddVersion(ctx context.Context, at netip.AddrPort, m *results.Measurement) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	response, err := ask(ctx, at, Sizes()[0])
	if err != nil {
		return
	}
	_ = response.Body.Close()
	// A cache names itself there, and what it has asked as the server (RFC 9110, 7.6.3).
	_, cache, _ := strings.Cut(strings.TrimSuffix(response.Header.Get("Via"), ")"), "(")
	if said := cmp.Or(cache, response.Header.Get("Server")); said != "" {
		m.Facts["server"], m.Conditions = said[:min(len(said), 80)], append(m.Conditions, "server")
	}
}
