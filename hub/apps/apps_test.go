package apps

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/hub/api"
)

// A host may write any machine into its status: one that cannot be gets no Apps, with the reason, and ends nothing.
func TestUntrueHosts(t *testing.T) {
	text, err := json.Marshal(hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 1}.Host(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ name, old, new, says string }{
		{"true", "", "", ""},
		{"no such CPU", `"id":0,`, `"id":-1,`, "status.machine: cpus[0].id: expected 0 to 8191, in ascending order, found -1"},
		{"too many CPUs", `"id":3,`, `"id":8192,`, "cpus[3].id"},
		{"without order", `"id":1,`, `"id":3,`, "cpus[2].id: expected 4 to 8191, in ascending order, found 2"},
		{"no such node", `"numaNode":0`, `"numaNode":8192`, "cpus[0].numaNode: expected 0 to 8191, found 8192"},
		{"no such nodes", `"numaNodes":[{"id":0,`, `"numaNodes":[{"id":-1,`, "numaNodes[0].id"},
		{"no such card", `"pciDevices":[`, `"pciDevices":[{"address":"0000:3b:00.0","sriov":{"numVFs":2000000000}}`,
			"pciDevices[0].sriov.numVFs: expected 65535 at most"},
		{"no such lane", `"cpus":[`, `"lanes":[{"name":"a","cpus":"1","spec":{"cpus":{"count":-1}}}],"cpus":[`, "lanes[0]: "},
	} {
		t.Run(row.name, func(t *testing.T) {
			said := strings.Replace(string(text), row.old, row.new, 1)
			if row.old != "" && said == string(text) {
				t.Fatalf("no %s in %s", row.old, text)
			}
			var machine map[string]any
			if err := json.Unmarshal([]byte(said), &machine); err != nil {
				t.Fatal(err)
			}
			packed, err := pack(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "isolane.dev/v1alpha1", "kind": "Host",
				"metadata": map[string]any{"name": "one", "namespace": api.Namespace("one")},
				"spec":     map[string]any{"site": "default"}, "status": map[string]any{"machine": machine}}})
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			c := &Controller{Log: slog.New(slog.NewTextHandler(&log, nil)), changed: map[string]bool{"host-one/one": true},
				hosts: cache.NewStore(cache.MetaNamespaceKeyFunc), site: cache.NewStore(cache.MetaNamespaceKeyFunc)}
			if err := c.hosts.Add(packed); err != nil {
				t.Fatal(err)
			}
			c.refresh(t.Context())
			if refused := strings.Contains(log.String(), "a host gets no Apps"); refused != (row.says != "") ||
				!strings.Contains(log.String(), row.says) {
				t.Errorf("it says %s\nexpected %q", &log, row.says)
			}
		})
	}
}
