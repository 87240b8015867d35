package host

import (
	"fmt"

	"isolane.dev/isolane/cpuset"
)

// maxVFs is the highest possible number of virtual functions: the field has 16 bits (PCI Express, 9.3.3).
const maxVFs = 65535

// maxNode is the highest number of a NUMA node, because the largest NODES_SHIFT of Linux is 10.
const maxNode = 1<<10 - 1

// Validate checks a machine that somebody else describes, and returns an error with the first field that no
// real machine can have. A machine that was read always passes.
func (h Host) Validate() error {
	last := -1
	for i, c := range h.CPUs {
		if c.ID <= last || c.ID > cpuset.Max {
			return fmt.Errorf("cpus[%d].id: expected %d to %d, in ascending order, found %d",
				i, last+1, cpuset.Max, c.ID)
		}
		if n := c.NUMANode; n != nil && (*n < 0 || *n > maxNode) {
			return fmt.Errorf("cpus[%d].numaNode: expected 0 to %d, found %d", i, maxNode, *n)
		}
		last = c.ID
	}
	last = -1
	for i, n := range h.NUMANodes {
		if n.ID <= last || n.ID > maxNode {
			return fmt.Errorf("numaNodes[%d].id: expected %d to %d, in ascending order, found %d",
				i, last+1, maxNode, n.ID)
		}
		last = n.ID
	}
	for i, d := range h.PCIDevices {
		if s := d.SRIOV; s != nil && s.NumVFs > maxVFs {
			return fmt.Errorf("pciDevices[%d].sriov.numVFs: expected %d at most, found %d", i, maxVFs, s.NumVFs)
		}
	}
	return nil
}
