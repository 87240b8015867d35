package webserver

import (
	"cmp"
	"context"
	"net/netip"
	"strings"
	"time"

	"isolane.dev/isolane/results"
)

// AddVersion asks the server at an address for its version, such as "nginx/1.22.1" or "Varnish/7.1", for a
// second at most, and adds it to a measurement as a condition: it must be the same in runs that are compared.
func AddVersion(ctx context.Context, at netip.AddrPort, m *results.Measurement) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	response, err := ask(ctx, at, Sizes()[0])
	if err != nil {
		return
	}
	_ = response.Body.Close()
	// A cache names itself in Via, and the server that it has asked in Server (RFC 9110, 7.6.3).
	_, cache, _ := strings.Cut(strings.TrimSuffix(response.Header.Get("Via"), ")"), "(")
	if said := cmp.Or(cache, response.Header.Get("Server")); said != "" {
		m.Facts["server"], m.Conditions = said[:min(len(said), 80)], append(m.Conditions, "server")
	}
}
