#!/bin/sh
# Process 1 of the guest. There is no systemd: mounts, drivers, and the agent that takes commands.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb
mount -t proc proc /proc; mount -t sysfs sys /sys
mkdir -p /dev/pts /dev/shm /dev/hugepages
mount -t devpts devpts /dev/pts; mount -t tmpfs shm /dev/shm; mount -t tmpfs run /run; mkdir -p /run/lock /run/netns
mount -t cgroup2 none /sys/fs/cgroup; mount -t debugfs none /sys/kernel/debug; mount -t tracefs none /sys/kernel/tracing
mount -t hugetlbfs none /dev/hugepages; mount -t tmpfs tmp /tmp
hostname lab; ip link set lo up
modprobe -q 9pnet_virtio
for share in lab host; do
	mkdir -p /$share; mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 $share /$share
done
# There is no udev either: all aliases at once load the driver of every device.
modprobe -qa $(cat /sys/bus/pci/devices/*/modalias) 2>/dev/null
for port in /sys/class/virtio-ports/*; do
	[ "$(cat $port/name 2>/dev/null)" = lab.0 ] && /lab/isolane-lab guest /dev/${port##*/} &
done
while :; do wait; sleep 1000; done
