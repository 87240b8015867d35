package hosttest

import (
	"slices"
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/host/task"
)

// Rescuers of work queues are told by the kernel's flag: old kernels name them as their queue.
func TestRescuer(t *testing.T) {
	for thread, want := range map[task.Stat]bool{
		{Comm: "mm_percpu_wq", Worker: true}: true, {Comm: "kworker/R-writeback", Worker: true}: true,
		{Comm: "kworker/3:1-events", Worker: true}: false, {Comm: "kworker/u8:0", Worker: true}: false, {Comm: "kswapd0"}: false,
	} {
		if rescuer(thread) != want {
			t.Errorf("%+v: expected %t", thread, want)
		}
	}
}

// Interrupts of a driver that has loaded since are no change if they have the CPUs that the kernel gives new ones.
func TestNewInterrupts(t *testing.T) {
	root := fstest.MapFS{"sys/devices/system/node/node1/cpulist": {Data: []byte("4-7\n")}, "proc/irq/31/node": {Data: []byte("1\n")},
		"proc/irq/32/node": {Data: []byte("-1\n")}, "proc/irq/33/node": {Data: []byte("1\n")}}
	const file = "/smp_affinity_list"
	before := State{"/proc/irq/default_smp_affinity": "ff", "/proc/irq/30" + file: "0-7"}
	now := State{"/proc/irq/default_smp_affinity": "ff", "/proc/irq/30" + file: "0-6", "/proc/irq/31" + file: "4-7",
		"/proc/irq/32" + file: "0-7", "/proc/irq/33" + file: "4-6"}
	before.markAsMade(root)
	now.markAsMade(root)
	want := []string{`/proc/irq/30/smp_affinity_list: was "0-7 (as made)", is "0-6"`,
		`/proc/irq/33/smp_affinity_list: was not there, is "4-6"`}
	if changes := now.Changes(before); !slices.Equal(changes, want) {
		t.Errorf("found %q, expected %q", changes, want)
	}
}
