package enforce_test

import (
	"errors"
	"maps"
	"os"
	"strings"
	"testing"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/enforce/adopt"
	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/plan"
)

// TestAdopt removes the record of lanes. Then status names the lanes, nothing new is recorded, and adopt
// gives the kernel's defaults to all that lanes change. What never had another value stays.
func TestAdopt(t *testing.T) {
	for _, mounts := range []string{"cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0"} {
		version, _, _ := strings.Cut(mounts, " ")
		t.Run(version, func(t *testing.T) {
			b := enforce.NewStandInOf(t, mounts)
			for name, text := range map[string]string{ // the kernel's defaults
				"proc/irq/25/smp_affinity_list":                                         "0-3",
				"proc/irq/26/smp_affinity_list":                                         "0-3",
				"sys/devices/virtual/net/br0/queues/rx-0/rps_cpus":                      "0",
				"sys/devices/system/cpu/cpufreq/policy0/scaling_governor":               "schedutil",
				"sys/devices/system/cpu/cpufreq/policy2/scaling_governor":               "schedutil",
				"sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages": "0",
			} {
				b.Write(t, name, text)
			}
			before := maps.Clone(b.Fingerprint(t))
			b.Apply(t, knob.Ops(b.Dir()))
			if err := os.RemoveAll(b.State()); err != nil {
				t.Fatal(err)
			}
			l := b.Open(t)
			s, err := l.Status(t.Context())
			if err != nil || len(s.Unrecorded) == 0 || s.Settled() {
				t.Errorf("%+v, %v", s, err)
			}
			var alone *enforce.NoRecordError
			if _, err = l.Put(t.Context(), b.Placement(), noAttach); !errors.As(err, &alone) || l.Settings() != 0 {
				t.Errorf("%d settings recorded, %v", l.Settings(), err)
			}
			did, err := adopt.Lanes(t.Context(), l, b.FS(t))
			if err != nil {
				t.Fatal(err)
			}
			unknown := map[string]bool{}
			for _, a := range did {
				unknown[a.Name] = unknown[a.Name] || a.Kind == enforce.Unknown
			}
			for _, name := range differing(before, b.Fingerprint(t)) {
				// What only the administrator knows, and what remains open to other lanes.
				name = strings.TrimPrefix(name, b.Dir())
				if !unknown[name] && !strings.HasPrefix(name, "/sys/fs/cgroup/") && !strings.HasSuffix(name, "xps_cpus") {
					t.Errorf("%s is not as the kernel has it", name)
				}
			}
			again, err := adopt.Lanes(t.Context(), l, b.FS(t))
			if err != nil || len(again) > 0 {
				t.Errorf("again: %v, %v", again, err)
			}
			if _, err = l.Put(t.Context(), b.Placement(), noAttach); err != nil {
				t.Error(err)
			}
			if _, err = l.Put(t.Context(), plan.Placement{}, noAttach); err != nil {
				t.Error(err)
			}
		})
	}
}

func noAttach(attached.Workload) error { return nil }

func differing(a, b map[string]string) []string {
	var names []string
	for k, v := range a {
		if b[k] != v {
			names = append(names, k)
		}
	}
	return names
}
