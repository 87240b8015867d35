#!/bin/sh
# Process 1 of the guest: mounts, drivers, and the agent that takes commands. A machine with systemd has the
# mounts from that, and the rest from this script as a unit.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb
if [ $$ = 1 ]; then
	mount -t proc proc /proc
	if grep -qw isolane.lab.init=systemd /proc/cmdline; then
		mount -t tmpfs -o mode=755 run /run; mkdir -p /run/systemd/system/multi-user.target.wants
		cd /run/systemd/system
		# What is slow, and nobody's need but that of a script that unmasks it. Without udev no device has a unit that a
		# console could wait for.
		for unit in getty.target timers.target ldconfig.service kmod-static-nodes.service systemd-logind.service \
			systemd-journal-catalog-update.service systemd-sysusers.service systemd-tmpfiles-setup.service \
			systemd-tmpfiles-setup-dev.service systemd-tmpfiles-setup-dev-early.service systemd-update-done.service \
			modprobe@configfs.service modprobe@efi_pstore.service modprobe@fuse.service sys-fs-fuse-connections.mount \
			systemd-udevd.service systemd-udevd-control.socket systemd-udevd-kernel.socket systemd-udev-trigger.service; do
			ln -s /dev/null $unit
		done
		rm -rf /etc/systemd/system/*.wants # what packages have enabled: a script starts what it needs
		# What was installed before a reboot is in the shared folder: the root itself is in memory.
		modprobe -q 9pnet_virtio; mkdir -p /host; mount -t 9p -o trans=virtio,version=9p2000.L host /host
		[ -f /host/installed.tar ] && tar -xf /host/installed.tar -C /
		umount /host
		printf '[Service]\nExecStart=/sbin/lab-init\nKillMode=process\n' > isolane-lab.service
		ln -s ../isolane-lab.service multi-user.target.wants
		ln -s /usr/lib/systemd/system/multi-user.target default.target
		exec /usr/lib/systemd/systemd
	fi
	mount -t sysfs sys /sys
	mkdir -p /dev/pts /dev/shm /dev/hugepages
	mount -t devpts devpts /dev/pts; mount -t tmpfs shm /dev/shm; mount -t tmpfs run /run; mkdir -p /run/lock
	mount -t cgroup2 none /sys/fs/cgroup; mount -t debugfs none /sys/kernel/debug; mount -t tracefs none /sys/kernel/tracing
	mount -t hugetlbfs none /dev/hugepages; mount -t tmpfs tmp /tmp
	hostname lab; ip link set lo up
fi
mkdir -p /run/netns
modprobe -q 9pnet_virtio
for share in lab host; do
	mkdir -p /$share; mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 $share /$share
done
# There is no udev either: all aliases at once load the driver of every device; that of frequencies loads where there
# are any.
modprobe -qa $(cat /sys/bus/pci/devices/*/modalias /sys/bus/virtio/devices/*/modalias) acpi-cpufreq 2>/dev/null
for port in /sys/class/virtio-ports/*; do
	[ "$(cat $port/name 2>/dev/null)" = lab.0 ] && /lab/isolane-lab guest /dev/${port##*/} &
done
while :; do wait; sleep 1000; done
