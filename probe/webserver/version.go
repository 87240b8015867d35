package webserver

import (
	"context"
	"net/http"
	"net/netip"
	"regexp"
	"time"
)

// Version is what a server at an address says of itself, such as "nginx/1.22.1" or "Varnish/7.1"; "" where it
// says nothing, or does not answer within a second.
func Version(ctx context.Context, at netip.AddrPort) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.String()+Path(Sizes()[0]), nil)
	if err != nil {
		return ""
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		return ""
	}
	_ = response.Body.Close()
	// A cache names itself there, and what it has asked as the server (RFC 9110, 7.6.3).
	name := regexp.MustCompile(`\((.{1,80})\)`)
	if cache := name.FindStringSubmatch(response.Header.Get("Via")); cache != nil {
		return cache[1]
	}
	said := response.Header.Get("Server")
	return said[:min(len(said), 80)]
}
