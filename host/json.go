package host

import (
	"encoding/json"

	"isolane.dev/isolane/host/cgroup"
)

// MarshalJSON prints null for what the source does not say.
func (h Host) MarshalJSON() ([]byte, error) {
	type plain Host
	return json.Marshal(struct {
		plain
		Hostname    *string `json:"hostname"`
		MemoryBytes *uint64 `json:"memoryBytes"`
	}{plain(h), orNull(h.Hostname), orNull(h.MemoryBytes)})
}

// MarshalJSON prints null for a kind that is not known.
func (k CPUKind) MarshalJSON() ([]byte, error) { return json.Marshal(orNull(string(k))) }

// MarshalJSON prints null for a size that is not known; a node without memory has 0.
func (n NUMANode) MarshalJSON() ([]byte, error) {
	type plain NUMANode
	size := orNull(n.MemoryBytes)
	if n.HasMemory != nil && !*n.HasMemory {
		size = new(uint64)
	}
	return json.Marshal(struct {
		plain
		MemoryBytes *uint64 `json:"memoryBytes"`
	}{plain(n), size})
}

// MarshalJSON prints null for what the source does not say.
func (k Kernel) MarshalJSON() ([]byte, error) {
	type plain Kernel
	v := struct {
		plain
		Release      *string        `json:"release"`
		Version      *string        `json:"version"`
		Cmdline      *string        `json:"cmdline"`
		BootID       *string        `json:"bootID"`
		MachineID    *string        `json:"machineID"`
		Cgroup       *cgroup.Mounts `json:"cgroup"`
		Clocksource  *string        `json:"clocksource"`
		IdleDriver   *string        `json:"idleDriver"`
		IdleGovernor *string        `json:"idleGovernor"`
		CPUModel     *string        `json:"cpuModel"`
		Microcode    *string        `json:"microcode"`
	}{plain: plain(k), Release: orNull(k.Release), Version: orNull(k.Version), Cmdline: orNull(k.Cmdline),
		BootID: orNull(k.BootID), MachineID: orNull(k.MachineID), Clocksource: orNull(k.Clocksource),
		IdleDriver: orNull(k.IdleDriver), IdleGovernor: orNull(k.IdleGovernor), CPUModel: orNull(k.CPUModel),
		Microcode: orNull(k.Microcode)}
	if k.Cgroup.Version != "" {
		v.Cgroup = &k.Cgroup
	}
	return json.Marshal(v)
}

// MarshalJSON prints null for what the source does not say.
func (c Cache) MarshalJSON() ([]byte, error) {
	type plain Cache
	return json.Marshal(struct {
		plain
		Type      *string `json:"type"`
		SizeBytes *uint64 `json:"sizeBytes"`
	}{plain(c), orNull(c.Type), orNull(c.SizeBytes)})
}

// MarshalJSON prints null for what the source does not say.
func (d PCIDevice) MarshalJSON() ([]byte, error) {
	type plain PCIDevice
	return json.Marshal(struct {
		plain
		Class  *string `json:"class"`
		Kind   *string `json:"kind"`
		Vendor *string `json:"vendor"`
		Device *string `json:"device"`
	}{plain(d), orNull(d.Class), orNull(d.Kind), orNull(d.Vendor), orNull(d.Device)})
}

// orZero is the reverse of orNull.
func orZero[T any](v *T) (zero T) {
	if v == nil {
		return zero
	}
	return *v
}

func orNull[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}
