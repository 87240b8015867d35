package bench

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/witness"
)

// far is a time that a cache line needs between two L3, and not below one.
const far = 60 * time.Nanosecond

// BenchmarkCaches measures round trips over one veth pair, both ends spinning, 40 times, and meanwhile how long a cache
// line takes between the two CPUs, as a proof does. The CPUs never halt. A hypervisor may move virtual CPUs between
// caches: it reports the medians of the round trips while they were near and far.
func BenchmarkCaches(b *testing.B) {
	hosttest.Need(b, hosttest.Root, hosttest.CPUs(2), hosttest.Program("gcc"), hosttest.Program("ip"))
	c := inPlainC(b)
	cpus, _ := ends(b)
	network(b)
	keepAwake(b, cpus)
	for b.Loop() {
		found := map[string][]float64{}
		for range 40 {
			s, err := witness.Begin(b.Context(), witness.Watch{CPUs: set(cpus...), Client: set(cpus[0]), Measured: set(cpus[1])})
			if err != nil {
				b.Fatal(err)
			}
			f := run(b, cpus, fifo(), []string{c, "server", server, "7007", "spin"},
				[]string{c, "client", server, "7007", "64", fmt.Sprint(window.Seconds())}, readFloor)
			line := s.CacheLine()
			if _, err = s.End(); err != nil || line == nil {
				b.Fatal("no distance of the CPUs: ", err)
			}
			where := "near"
			if time.Duration(line.Median) > far {
				where = "far"
			}
			b.Logf("%+v: P50 %d P99.9 %d", *line, f.P50, f.P999)
			found["P50-"+where+"-ns"] = append(found["P50-"+where+"-ns"], float64(f.P50))
			found["P99.9-"+where+"-ns"] = append(found["P99.9-"+where+"-ns"], float64(f.P999))
		}
		for name, values := range found {
			slices.Sort(values)
			b.ReportMetric(values[len(values)/2], name)
		}
	}
}

func set(cpus ...string) cpuset.Set { return cpuset.MustParse(strings.Join(cpus, ",")) }

// keepAwake keeps the CPUs from halting, as a lane's do (pm_qos_resume_latency_us, Documentation/ABI/testing/sysfs-devices-power).
func keepAwake(b *testing.B, cpus []string) {
	b.Helper()
	for _, cpu := range cpus {
		file := "/sys/devices/system/cpu/cpu" + cpu + "/power/pm_qos_resume_latency_us"
		before, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, []byte("n/a"), 0)
		}
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := os.WriteFile(file, before, 0); err != nil {
				b.Error(err)
			}
		})
	}
}
