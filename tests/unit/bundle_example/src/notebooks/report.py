# Databricks notebook source
print("report")
