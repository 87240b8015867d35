package enforce

import (
	"errors"
	"fmt"
	"io/fs"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
)

// idleStates holds the CPUs in the shallowest idle state: "n/a" in pm_qos_resume_latency_us means
// that no resume latency at all is acceptable, so the CPU polls
// (Documentation/ABI/testing/sysfs-devices-power).
func idleStates(root fs.FS, _ host.Host, cpus cpuset.Set) ([]journal.Step, error) {
	var steps []journal.Step
	for c := range cpus.All() {
		path := fmt.Sprintf("sys/devices/system/cpu/cpu%d/power/pm_qos_resume_latency_us", c)
		if _, err := fs.Stat(root, path); errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without power management of CPUs has no idle states to leave
		}
		steps = append(steps, file("/"+path, "n/a"))
	}
	return steps, nil
}

// Awake returns the steps that keep the given CPUs from idling deeply, alone.
func Awake(root fs.FS, h host.Host, cpus cpuset.Set) ([]journal.Step, error) {
	return idleStates(root, h, cpus)
}
