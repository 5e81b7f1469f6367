#!/bin/sh
echo set up >../test-setup.txt
