package cores

import (
	"fmt"
	"strings"

	"isolane.dev/isolane/plan"
)

// ovsDPDK writes commands (Open vSwitch: ovs-vswitchd.conf.db(5), other_config). The PMD threads run on the
// CPUs of the role pmd, or on all but main; the other threads of OVS run on main.
func ovsDPDK(r Request) (string, error) {
	main, pmd := r.Lane.PollMode()
	if pmd.IsEmpty() {
		return "", fmt.Errorf("lane %s has one CPU: OVS-DPDK wants one for its main thread and at least one "+
			"for PMD threads", r.Lane.Name)
	}
	var lines []string
	if !main.IsEmpty() {
		lines = append(lines, "ovs-vsctl --no-wait set Open_vSwitch . other_config:dpdk-lcore-mask="+mask(main))
	}
	lines = append(lines, "ovs-vsctl --no-wait set Open_vSwitch . other_config:pmd-cpu-mask="+mask(pmd))
	if len(r.Lane.Hugepages) > 0 {
		lines = append(lines, fmt.Sprintf(
			`ovs-vsctl --no-wait set Open_vSwitch . other_config:dpdk-socket-mem="%s"`, r.memoryByNode()))
	}
	if n := r.Lane.Spec.Network.Queues; n > 0 {
		line := fmt.Sprintf("ovs-vsctl --no-wait set Interface %s options:n_rxq=%d", r.Lane.Spec.Network.Device, n)
		if affinity := RxqAffinity(r.Lane); affinity != "" {
			line += fmt.Sprintf(` other_config:pmd-rxq-affinity="%s"`, affinity)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n") + "\n", nil
}

// RxqAffinity returns which poll-mode thread serves which receive queue of the lane's card, as QUEUE:CPU with
// commas; "": Open vSwitch chooses. A thread with such a queue serves no others, so the last thread gets
// none: it serves the ports of workloads.
func RxqAffinity(l plan.Lane) string {
	_, pmd := l.PollMode()
	cpus := pmd.Slice()
	if len(cpus) < 2 {
		return ""
	}
	var pairs []string
	for q := range l.Spec.Network.Queues {
		pairs = append(pairs, fmt.Sprintf("%d:%d", q, cpus[q%(len(cpus)-1)]))
	}
	return strings.Join(pairs, ",")
}
