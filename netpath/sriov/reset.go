package sriov

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
)

// wasReset reports whether the card was reset since a driver of the kernel took the function. A driver lets
// the function access memory when it starts (Bus Master Enable in its PCI command register). A reset of the
// card clears that. The kernel then restores the registers of the card, but not those of its functions
// (pci_restore_iov_state of drivers/pci/iov.c).
func wasReset(address string) (bool, error) {
	config, err := os.Open(path.Join(devices, address, "config"))
	if err != nil {
		return false, err
	}
	defer config.Close()
	var command [2]byte
	if _, err = config.ReadAt(command[:], 4); err != nil { // PCI_COMMAND of include/uapi/linux/pci_regs.h
		return false, err
	}
	return binary.LittleEndian.Uint16(command[:])&4 == 0, nil
}

// revive restarts the card's link, so that drivers such as igb set it up again, and has the function's driver
// take it again. The function then has a new device, on the host.
func (a *at) revive(ctx context.Context) error {
	if a.Name == "" { // not a driver of network devices: its user restarts it
		return nil
	}
	reset, err := wasReset(a.address)
	if err != nil || !reset {
		return err
	}
	card := a.pf.Attrs().Name
	if err = netdev.RestartLink("", card); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("ethtool -r %s: %w", card, err)
	}
	driver, err := os.Readlink(path.Join(devices, a.address, "driver"))
	if err == nil {
		err = os.WriteFile(path.Join(drivers, path.Base(driver), "unbind"), []byte(a.address), 0)
	}
	if err == nil {
		err = os.WriteFile(path.Join(drivers, path.Base(driver), "bind"), []byte(a.address), 0)
	}
	if err != nil {
		return fmt.Errorf("%s, whose card was reset, to its driver again: %w", a.address, err)
	}
	err = wait(ctx, func() bool {
		name, nerr := netdev.OfPCI(a.address)
		link, lerr := a.h.LinkByName(card)
		err = errors.Join(nerr, lerr)
		return err != nil || name != "" && link.Attrs().RawFlags&unix.IFF_RUNNING != 0
	})
	if err != nil {
		return err
	}
	return a.findDevice()
}
