package sriov

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/journal"
)

// kindVectors sets how many interrupts (MSI-X vectors) a virtual function has, where the card's driver lets
// them be set (Documentation/ABI/testing/sysfs-bus-pci, sriov_vf_msix_count). The kernel does that only while
// no driver has the function. The target is as in kindFunction, a value a number of vectors.
const kindVectors = "vf-vectors"

// totalVectors is the card's file with the vectors that all its functions have together; 0: nobody sets them.
const totalVectors = "sriov_vf_total_msix"

// vectorsFor returns how many vectors a function with that many queues needs: one for each, and one with
// which the card tells of its link and the like.
func vectorsFor(queues int) int { return queues + 1 }

func vectorsStep(target string, queues int) journal.Step {
	return journal.Step{Kind: kindVectors, Target: target, After: strconv.Itoa(vectorsFor(queues))}
}

type vectorsOp struct{}

func (vectorsOp) Check(s journal.Step) error {
	_, err := parseTarget(s.Target)
	if n, nerr := strconv.Atoi(s.After); err == nil && (nerr != nil || n < 1) && s.After != "" {
		err = fmt.Errorf("%s %s: %q: expected a number of vectors", s.Kind, s.Target, s.After)
	}
	return err
}

// idle is how a value ends while no driver has the function.
const idle = " without a driver"

// Read returns the size of the function's table of vectors.
func (vectorsOp) Read(_ context.Context, s journal.Step) (string, error) {
	address, now, err := bound(s)
	if err != nil {
		return "", err
	}
	config, err := os.ReadFile(path.Join(devices, address, "config"))
	if err != nil {
		return "", err
	}
	n, err := tableSize(config)
	if err != nil {
		return "", fmt.Errorf("%s: %w", address, err)
	}
	if now.driver == "" {
		return strconv.Itoa(n) + idle, nil
	}
	return strconv.Itoa(n), nil
}

// tableSize returns how many vectors a PCI function has: the Table Size of its MSI-X capability
// (include/uapi/linux/pci_regs.h, PCI_CAPABILITY_LIST and PCI_MSIX_FLAGS_QSIZE).
func tableSize(config []byte) (int, error) {
	const first, msix, most = 0x34, 0x11, 48 // as many as fit, if they form a ring
	if len(config) <= first {
		return 0, errors.New("its configuration space cannot be read: expected root")
	}
	at := int(config[first]) &^ 3
	for range most {
		if at == 0 || at+4 > len(config) {
			break
		}
		if config[at] == msix {
			return int(binary.LittleEndian.Uint16(config[at+2:])&0x7ff) + 1, nil
		}
		at = int(config[at+1]) &^ 3
	}
	return 0, errors.New("it has no MSI-X vectors")
}

// MayOverwrite reports whether no driver has the function: a crash may leave it so.
func (vectorsOp) MayOverwrite(_ journal.Step, now string) bool { return strings.HasSuffix(now, idle) }

// Write takes the function from its driver, sets its vectors, and lets the driver take it again, also if the
// card has no room for so many. Its device keeps its name.
func (vectorsOp) Write(ctx context.Context, s journal.Step, value string) error {
	count, err := strconv.Atoi(strings.TrimSuffix(value, idle))
	if err != nil {
		return err
	}
	address, now, err := bound(s)
	if err != nil {
		return err
	}
	name, err := netdev.OfPCI(address)
	if err == nil && now.driver != "" {
		err = os.WriteFile(path.Join(devices, address, "driver/unbind"), []byte(address), 0)
	}
	if err != nil {
		return err
	}
	err = os.WriteFile(path.Join(devices, address, "sriov_vf_msix_count"), []byte(strconv.Itoa(count)), 0)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("the card's driver lets nobody set the vectors of %s any more", address) // it is not lost
	}
	err = errors.Join(err, os.WriteFile("/sys/bus/pci/drivers_probe", []byte(address), 0))
	late := wait(ctx, func() bool {
		_, b, berr := bound(s)
		device, derr := netdev.OfPCI(address)
		return berr != nil || derr != nil || b.driver != "" && (device != "" || name == "")
	})
	return errors.Join(err, late, keepName(address, name))
}

// keepName gives a function's new device the name that the former one had; "" is none.
func keepName(address, name string) error {
	now, err := netdev.OfPCI(address)
	if err != nil || now == name || now == "" || name == "" {
		return err
	}
	h, l, err := netdev.Find("", now)
	if err != nil || l == nil {
		return err
	}
	defer h.Close()
	return h.LinkSetName(l, name)
}

// Name says which setting it is.
func (vectorsOp) Name(s journal.Step) string {
	t, _ := parseTarget(s.Target)
	return fmt.Sprintf("interrupts of virtual function %d of %s", t.number, t.card)
}

// Describe says that no card with such a driver was there to try.
func (o vectorsOp) Describe(s journal.Step) (name, from, to string) {
	return o.Name(s), s.Before, s.After + " (untested with any driver)"
}

// Shell returns commands that do what Write does.
func (vectorsOp) Shell(s journal.Step) string {
	t, err := parseTarget(s.Target)
	if err != nil {
		return ""
	}
	dir := card{address: t.card}.file(fmt.Sprint("virtfn", t.number))
	address := "$(basename $(readlink " + dir + "))"
	return fmt.Sprintf("echo %s > %s/driver/unbind; echo %s > %[2]s/sriov_vf_msix_count; echo %[1]s > "+
		"/sys/bus/pci/drivers_probe", address, dir, s.After)
}
