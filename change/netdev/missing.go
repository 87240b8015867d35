package netdev

import "io/fs"

// Missing returns the error that there is no such device. It matches fs.ErrNotExist.
func Missing(netns, name string) error {
	if netns != "" {
		name += " in " + netns
	}
	return missing(name)
}

type missing string

func (m missing) Error() string { return "there is no device " + string(m) }

func (missing) Is(target error) bool { return target == fs.ErrNotExist }
