package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/audit"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/settings"
	"isolane.dev/isolane/host/task"
)

const kvmGuide = "Documentation/virt/kvm/"

// virtualRules are about virtual machines: those on this machine, and the one that this machine is.
func virtualRules() []rule {
	return []rule{{
		id: "vcpu-pinning", title: "virtual CPUs are not pinned one to one",
		classes: severities(audit.Fault, audit.Fault, audit.Warn), needsLanes: true,
		impact: "the guest's CPU stops for milliseconds while its vCPU waits for another, and the guest cannot " +
			"know",
		fix:    "virsh vcpupin DOMAIN VCPU CPU, one CPU each; virsh emulatorpin DOMAIN {housekeeping}",
		source: "libvirt: CPU tuning, vcpupin", check: vcpuPinning,
	}, {
		id: "emulator-threads", title: "QEMU's own threads may run on the CPUs of its virtual ones",
		classes: severities(audit.Warn, audit.Fault, audit.Info), needsLanes: true,
		impact: "I/O and timers of the emulator preempt the guest for 10 to 500 µs",
		fix:    "virsh emulatorpin DOMAIN {housekeeping}; virsh iothreadadd and iothreadpin for disks",
		source: "libvirt: CPU tuning, emulatorpin", check: emulatorThreads,
	}, {
		id: "kvm-parameters", title: "KVM is set up for throughput",
		classes: severities(audit.Info, audit.Warn, audit.None),
		impact: "some µs at exits: the clock is synchronised every five minutes, pauses exit, executed pages " +
			"are split",
		boot: "kvm.kvmclock_periodic_sync=0 kvm_intel.ple_gap=0 kvm.nx_huge_pages=off kvm.halt_poll_ns=0 " +
			"(nx_huge_pages=off: only where guests are trusted)",
		source: kvmGuide + "x86/; " + parameters + ", kvm.nx_huge_pages", check: kvmParameters,
	}, {
		id: "guest-steal", title: "the hypervisor took CPU time from this machine",
		classes: severities(audit.Warn, audit.Fault, audit.Info),
		impact:  "each time, the CPU stops for up to milliseconds; nothing inside the guest prevents it",
		fix:     "on the hypervisor: pin virtual CPUs one to one, and emulator threads elsewhere",
		source:  "proc_stat(5), steal", check: steal,
	}, {
		id: "guest-idle", title: "an idle CPU of this guest returns to the hypervisor at once",
		classes: severities(audit.None, audit.Info, audit.None),
		impact:  "5 to 50 µs at each wake-up of a thread that sleeps",
		fix:     "modprobe cpuidle_haltpoll force=1 in the guest, or kvm.halt_poll_ns on the hypervisor",
		source:  kvmGuide + "halt-polling.rst; Documentation/virt/guest-halt-polling.rst", check: guestIdle,
	}}
}

// isVCPU reports whether a thread runs a virtual CPU on a real one and does not emulate it.
func isVCPU(t settings.Task) bool {
	_, is := task.VirtualCPU(t.Name)
	return is && !strings.HasSuffix(t.Name, "/TCG")
}

func (s *subject) vcpus() []settings.Task {
	return slices.DeleteFunc(slices.Clone(s.AllTasks()), func(t settings.Task) bool { return !isVCPU(t) })
}

func vcpuPinning(s *subject) []hit {
	var h hit
	vcpus := s.vcpus()
	for i, t := range vcpus {
		text := ""
		if t.Allowed.Len() > 1 {
			text = fmt.Sprintf("%d %s may run on CPUs %s", t.ID, t.Name, t.Allowed)
		}
		for _, other := range vcpus[:i] {
			if t.Allowed.Len() == 1 && other.Allowed == t.Allowed {
				text = fmt.Sprintf("%d %s and %d %s share CPU %s", other.ID, other.Name, t.ID, t.Name, t.Allowed)
			}
		}
		if on := t.Allowed.Intersection(s.lane); text != "" && !on.IsEmpty() {
			h.add(on, "%s", text)
		}
	}
	return h.counted("%d of %d virtual CPUs", len(vcpus))
}

func emulatorThreads(s *subject) []hit {
	machines := map[int]cpuset.Set{} // of virtual machines, by process
	for _, t := range s.vcpus() {
		machines[t.Process] = machines[t.Process].Union(t.Allowed.Intersection(s.lane))
	}
	return s.tasksOnLane(func(t settings.Task) bool {
		return t.Allowed.Intersects(machines[t.Process]) && !isVCPU(t)
	})
}

func kvmParameters(s *subject) []hit {
	if len(s.vcpus()) == 0 {
		return nil
	}
	var h hit
	for _, p := range []string{"kvm/parameters/kvmclock_periodic_sync", "kvm_intel/parameters/ple_gap",
		"kvm/parameters/nx_huge_pages", "kvm/parameters/halt_poll_ns"} {
		if v, ok := s.Files["/sys/module/"+p]; ok && v != "N" && v != "0" {
			h.add(cpuset.Set{}, "/sys/module/%s: %s", p, v)
		}
	}
	return h.counted("%d parameters")
}

func steal(s *subject) []hit {
	if s.Kernel.Steal == nil || *s.Kernel.Steal == 0 {
		return s.noHit(s.Kernel.Steal != nil, "/proc/stat")
	}
	return []hit{{inForce: fmt.Sprintf("%v since boot, all CPUs together", time.Duration(*s.Kernel.Steal))}}
}

func guestIdle(s *subject) []hit {
	driver := s.Kernel.IdleDriver
	switch idle, _ := s.Kernel.Parameters().Get("idle"); {
	case !isTrue(s.Kernel.Hypervisor) || driver == "haltpoll" || idle == "poll":
		return nil
	case driver == "":
		return s.noHit(false, "/sys/devices/system/cpu/cpuidle/current_driver")
	}
	return []hit{{inForce: fmt.Sprintf("idle driver %s, not haltpoll", driver)}}
}
