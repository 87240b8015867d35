package cores

import (
	"fmt"
	"strings"
)

// ovsDPDK writes commands (Open vSwitch: ovs-vswitchd.conf.db(5), other_config). The PMD threads are
// the role pmd, or all but main; the other threads of OVS run on main.
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
		var pairs []string
		cpus := pmd.Slice()
		for q := range n {
			pairs = append(pairs, fmt.Sprintf("%d:%d", q, cpus[q%len(cpus)]))
		}
		lines = append(lines, fmt.Sprintf(
			`ovs-vsctl --no-wait set Interface %s options:n_rxq=%d other_config:pmd-rxq-affinity="%s"`,
			r.Lane.Spec.Network.Device, n, strings.Join(pairs, ",")))
	}
	return strings.Join(lines, "\n") + "\n", nil
}
