package netdev

import "io/fs"

// Missing says that there is no such device, as fs.ErrNotExist: it may come again.
func Missing(netns, name string) error {
	if netns != "" {
		name += " in " + netns
	}
	return missing(name)
}

type missing string

func (m missing) Error() string { return "there is no device " + string(m) }

func (missing) Is(target error) bool { return target == fs.ErrNotExist }
