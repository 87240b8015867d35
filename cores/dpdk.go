package cores

import (
	"fmt"
	"strings"
)

// maxLcores is RTE_MAX_LCORE in the builds of distributions: -l accepts no CPU from this number on.
const maxLcores = 128

// dpdk writes EAL options (DPDK: EAL parameters). CPUs beyond RTE_MAX_LCORE are mapped to lcores from 0
// on, main first.
func dpdk(r Request) (string, error) {
	main, workers := Main(r.Lane)
	if r.Lane.CPUs.Len() > maxLcores {
		return "", fmt.Errorf("lane %s has %d CPUs, DPDK takes %d lcores",
			r.Lane.Name, r.Lane.CPUs.Len(), maxLcores)
	}
	var args []string
	if r.Lane.CPUs.Last() < maxLcores {
		args = append(args, "-l "+r.Lane.CPUs.String(), fmt.Sprintf("--main-lcore %d", main))
	} else {
		maps := []string{fmt.Sprintf("0@%d", main)}
		for id := range workers.All() {
			maps = append(maps, fmt.Sprintf("%d@%d", len(maps), id))
		}
		args = append(args, "--lcores "+strings.Join(maps, ","), "--main-lcore 0")
	}
	if len(r.Lane.Hugepages) > 0 {
		args = append(args, "--socket-mem "+r.memoryByNode())
	}
	for _, vf := range r.Lane.OwnFunctions() {
		args = append(args, "-a "+vf)
	}
	if v := r.VhostUser; v != nil { // it accepts at most eight pieces of memory
		args = append(args, fmt.Sprintf("--single-file-segments --vdev net_virtio_user0,path=%s,server=1,mac=%s",
			v.Socket, v.MAC))
	}
	return strings.Join(args, " ") + "\n", nil
}
