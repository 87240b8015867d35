package frames

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"isolane.dev/isolane/probe"
)

func TestRead(t *testing.T) {
	for settings, want := range map[string]string{
		"{size: 63}":           "size: 63: expected 64-1518 bytes with the FCS, or imix",
		"{size: 1519}":         "size: 1519: expected",
		"{size: big}":          `size: "big": expected`,
		"{rate: 0}":            "rate: 0: expected more than 0 per second, or max",
		"{rate: 3e7}":          "rate: 3e+07: expected up to 2e+07 frames per second, or max",
		"{rate: fast}":         `rate: "fast": expected`,
		"{forwarder: vpp}":     `forwarder: "vpp": expected isolane, kernel or testpmd`,
		"{socket: raw}":        `socket: "raw": expected auto, xdp or packet`,
		"{wait: sleep}":        `wait: "sleep": expected spin, block or adaptive`,
		"{sizes: 64}":          "sizes",
		"{}":                   "",
		"{size: 64}":           "",
		"{size: imix}":         "",
		"{rate: 1000}":         "",
		"{forwarder: testpmd}": "",
		"{forwarder: kernel}":  "",
	} {
		p, err := Driver{}.Read([]byte(settings))
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) || want == "" && err != nil {
			t.Errorf("%s: %v, want %q", settings, err, want)
		}
		if err != nil {
			continue
		}
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Driver{}.Read(data) // as the client gets them
		if err != nil || !reflect.DeepEqual(p, again) {
			t.Errorf("%s as %s: %+v, %v", settings, data, again, err)
		}
	}
}

// The checks of a figure guard the metric that represents the load: the rate at max, else the latency.
func TestGuards(t *testing.T) {
	for rate, want := range map[probe.Rate]string{
		probe.Max: "f-use f 95, f-unnamed f 0, f-doubled f 0, f-foreign f 0",
		1000:      "f-unnamed f-latency 0, f-doubled f-latency 0, f-foreign f-latency 0",
	} {
		var got []string
		for _, m := range (Probe{Rate: rate, Forwarder: ours}).Metrics("f") {
			if m.Guards != "" {
				got = append(got, fmt.Sprintf("%s %s %g", m.Name, m.Guards, m.Limit))
			}
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("rate %g: %s, want %s", float64(rate), text, want)
		}
	}
}
